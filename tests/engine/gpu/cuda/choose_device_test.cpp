#include "engine/gpu/cuda/choose_device.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

using namespace lockstep;
using gpu::cuda::choose_device;

namespace {

bool is_usage(const Error& error) {
  return error.status() == ExitStatus::usage;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_uses_the_only_visible_device) {
  BOOST_TEST(choose_device(0, 1, 1) == 0);
  BOOST_TEST(choose_device(3, 4, 1) == 0);
}

BOOST_AUTO_TEST_CASE(the_local_rank_selects_among_all_devices_of_a_host) {
  BOOST_TEST(choose_device(0, 4, 4) == 0);
  BOOST_TEST(choose_device(3, 4, 4) == 3);
  BOOST_TEST(choose_device(1, 2, 8) == 1);
}

BOOST_AUTO_TEST_CASE(no_device_is_an_error) {
  BOOST_CHECK_EXCEPTION((void)choose_device(2, 4, 0), Error, is_usage);
}

BOOST_AUTO_TEST_CASE(fewer_devices_than_ranks_is_an_error_with_both_counts) {
  BOOST_CHECK_EXCEPTION((void)choose_device(0, 4, 3), Error, [](const Error& error) {
    return is_usage(error) &&
           std::string(error.what()).find("3 GPUs are fewer than the 4 ranks") != std::string::npos;
  });
}
