#include "lockstep/runtime/open_files.hpp"

#include <boost/test/unit_test.hpp>

#include <sys/resource.h>

using namespace lockstep;

namespace {

rlimit limit_of_files() {
  rlimit limit{};
  BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit;
}
void set_limit(rlim_t soft, rlim_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_soft_limit_is_raised_to_the_hard_one_and_never_lowered) {
  const rlim_t hard = limit_of_files().rlim_max;
  set_limit(64, hard);

  raise_open_file_limit();

  const rlim_t raised = limit_of_files().rlim_cur;
  BOOST_TEST(raised > 64U);
  BOOST_TEST((raised == hard || raised == 32768U), raised);
  set_limit(200, 200);
  raise_open_file_limit();
  BOOST_TEST(limit_of_files().rlim_cur == 200U);
}
