#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/health/stop_timer.hpp"

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_CASE(a_run_without_an_end_never_stops_by_itself) {
  StopTimer timer(std::nullopt, 1e6);
  timer.step_took(1e6);

  BOOST_TEST(!timer.is_due(StopTimer::Clock::now(), {.saving = true}));
}

BOOST_AUTO_TEST_CASE(the_steps_until_the_run_may_stop_again_must_fit_before_the_end) {
  const auto now = StopTimer::Clock::now();
  StopTimer timer(now + 200s, 20);
  timer.step_took(10);

  BOOST_TEST(timer.needed({.steps = 8}) - timer.needed({}) == 7 * 10);
  BOOST_TEST(!timer.is_due(now, {.steps = 15}));
  BOOST_TEST(timer.is_due(now, {.steps = 16}));
}

BOOST_AUTO_TEST_CASE(two_steps_and_a_save_must_fit_before_the_end) {
  const auto now = StopTimer::Clock::now();
  StopTimer timer(now + 1000s, 100);
  timer.step_took(10);
  const auto needed = std::chrono::duration_cast<StopTimer::Clock::duration>(
      std::chrono::duration<double>(timer.needed({})));

  BOOST_TEST(timer.needed({}) >= 2 * 10 + 100);
  BOOST_TEST(timer.needed({}) <= 2 * 10 + 2 * 100);
  BOOST_TEST(timer.needed({.saving = true}) >= timer.needed({}) + 100);
  BOOST_TEST(!timer.is_due(now, {.saving = true}));
  BOOST_TEST(!timer.is_due(now + 1000s - needed - 1s, {}));
  BOOST_TEST(timer.is_due(now + 1000s - needed, {}));
}

BOOST_AUTO_TEST_CASE(measured_saves_replace_the_assumed_one_and_the_longest_counts) {
  StopTimer timer(StopTimer::Clock::now(), 100);
  const double assumed = timer.needed({});

  timer.save_took(10);
  const double quick = timer.needed({});
  timer.save_took(20);
  const double slow = timer.needed({});
  timer.save_took(5);

  BOOST_TEST(quick < assumed);
  BOOST_TEST(slow > quick);
  BOOST_TEST(timer.needed({}) == slow);
}

BOOST_AUTO_TEST_CASE(a_long_step_is_forgotten_slowly) {
  StopTimer timer(StopTimer::Clock::now(), 0);
  timer.step_took(100);
  const double at_once = timer.needed({});
  timer.step_took(1);
  BOOST_TEST(timer.needed({}) > 0.97 * at_once);

  for (int i = 0; i < 1000; ++i) timer.step_took(1);

  BOOST_TEST(timer.needed({}) < 0.1 * at_once);
}

BOOST_AUTO_TEST_CASE(slurms_formats_of_time_are_parsed) {
  BOOST_TEST(parse_time_left("1-02:03:04").value_or(-1) == 86400 + 2 * 3600 + 3 * 60 + 4);
  BOOST_TEST(parse_time_left("02:03:04").value_or(-1) == 2 * 3600 + 3 * 60 + 4);
  BOOST_TEST(parse_time_left("3:04").value_or(-1) == 3 * 60 + 4);
  BOOST_TEST(parse_time_left("0:00").value_or(-1) == 0);
  for (const char* words :
       {"UNLIMITED", "NOT_SET", "INVALID", "", "-", "1:2:3:4", "1-", "3:", "x-1:00"}) {
    BOOST_TEST(!parse_time_left(words).has_value(), words);
  }
}

BOOST_AUTO_TEST_CASE(the_time_left_is_read_from_slurms_environment_or_squeue) {
  const test::TemporaryDirectory directory;
  const std::string squeue = directory / "squeue";
  std::ofstream(squeue) << "#!/bin/sh\ncase $* in '-h -j 12 -o %L') echo 1:30 ;;\n"
                           "*13*) echo UNLIMITED ;;\n*) echo slurm_load_jobs error >&2 ;; esac\n";
  std::filesystem::permissions(squeue, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (directory.path() + ":" + path).c_str(), 1);
  ::unsetenv("SLURM_JOB_END_TIME");

  const auto left = [] { return ask_slurm_for_time().seconds_left; };
  const auto problem = [] { return ask_slurm_for_time().problem; };

  ::unsetenv("SLURM_JOB_ID");
  BOOST_TEST(!left().has_value());
  BOOST_TEST(problem().empty());
  ::setenv("SLURM_JOB_ID", "$(touch harm)", 1);
  BOOST_TEST(!left().has_value());
  BOOST_TEST(problem().empty());
  BOOST_TEST(!std::filesystem::exists("harm"));
  ::setenv("SLURM_JOB_ID", "12", 1);
  BOOST_TEST(left().value_or(-1) == 90);
  BOOST_TEST(problem().empty());
  ::setenv("SLURM_JOB_ID", "13", 1);
  BOOST_TEST(!left().has_value());
  BOOST_TEST(problem().empty());
  ::setenv("SLURM_JOB_ID", "14", 1);
  BOOST_TEST(problem().find("job 14 may run (squeue says 'slurm_load_jobs error')") !=
             std::string::npos);
  const auto now = StopTimer::Clock::now();
  BOOST_TEST((time_allowed(now, 50).end == now + 50s));
  ::setenv("SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) + 500).c_str(), 1);
  BOOST_TEST((left().value_or(-1) > 400 && left().value_or(-1) <= 500));
  BOOST_TEST((time_allowed(now, 1000).end < now + 600s));
  BOOST_TEST((time_allowed(now, 100).end == now + 100s));
  ::setenv("PATH", path.c_str(), 1);
}
