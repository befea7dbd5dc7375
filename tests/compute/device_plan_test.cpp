#include "lockstep/compute/device_plan.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <string>
#include <vector>

using namespace lockstep;

namespace {

const RankDevices with_device{.host = "gpu1", .usable = true, .allotted = true};
const RankDevices without{.host = "cpu1", .reason = "there is no driver"};

template <typename Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    BOOST_TEST((error.status() == ExitStatus::usage));
    return error.what();
  }
  return "nothing was refused";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(gpus_are_used_if_all_ranks_have_one_and_cpus_if_none_has) {
  BOOST_TEST((decide_device(std::vector{with_device, with_device}) == DeviceChoice::cuda));
  BOOST_TEST((decide_device(std::vector{without, without}) == DeviceChoice::cpu));
}

BOOST_AUTO_TEST_CASE(ranks_that_disagree_are_named_with_their_hosts) {
  const std::string text = refusal([] {
    static_cast<void>(decide_device(std::vector{with_device, with_device, without}));
  });

  BOOST_TEST(contains(text, "rank 0 (gpu1)"), text);
  BOOST_TEST(contains(text, "rank 2 (cpu1): there is no driver"), text);
  BOOST_TEST(contains(text, "--device cpu"), text);
}

BOOST_AUTO_TEST_CASE(unusable_allotted_gpus_are_an_error) {
  RankDevices unlucky = without;
  unlucky.allotted = true;
  const std::string text = refusal([&] {
    static_cast<void>(decide_device(std::vector{without, unlucky}));
  });

  BOOST_TEST(contains(text, "rank 1 (cpu1)"), text);
  BOOST_TEST(contains(text, "there is no driver"), text);
}

BOOST_AUTO_TEST_CASE(two_ranks_on_one_gpu_are_named) {
  const std::vector<TakenDevice> apart{{"a", "GPU-1"}, {"a", "GPU-2"}, {"b", "GPU-1"}};
  require_own_devices(apart);
  const std::vector<TakenDevice> shared{{"a", "GPU-1"}, {"a", "GPU-2"}, {"a", "GPU-2"}};
  const std::string text = refusal([&] { require_own_devices(shared); });

  BOOST_TEST(contains(text, "ranks 1 and 2 share GPU-2 of a"), text);
  BOOST_TEST(contains(text, "--comm mpi"), text);
}

BOOST_AUTO_TEST_CASE(slurms_variables_say_whether_gpus_were_allotted) {
  for (const char* name : {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE"}) {
    unsetenv(name);
  }
  BOOST_TEST(!scheduler_allotted_devices());
  setenv("SLURM_GPUS_ON_NODE", "0", 1);
  BOOST_TEST(!scheduler_allotted_devices());
  setenv("SLURM_GPUS_ON_NODE", "4", 1);
  BOOST_TEST(scheduler_allotted_devices());
}
