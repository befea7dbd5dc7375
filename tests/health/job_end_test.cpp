#include "lockstep/health/job_end.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

using Clock = StopTimer::Clock;
using Kind = SlurmAnswer::Kind;

/// Slurm, whose answer the test chooses.
struct FakeSlurm {
  std::atomic<Kind> kind = Kind::ends;
  std::atomic<double> left = 3600;
  std::atomic<int> asked = 0;

  [[nodiscard]] JobEndOptions options(double limit = 0) {
    return {.begin = Clock::now(),
            .limit = limit,
            .job = "12",
            .ask =
                [this](const std::stop_token&) {
                  ++asked;
                  return SlurmAnswer{.kind = kind, .seconds_left = left, .text = "busy"};
                },
            .times = {.interval = 0s, .patience = 60s}};
  }
};

double seconds_left(const std::optional<Clock::time_point>& end) {
  return end ? std::chrono::duration<double>(*end - Clock::now()).count() : -1;
}

/// Updates until there is a line, or for a while.
std::string line_of(JobEnd& job, StopTimer& timer) {
  for (int i = 0; i < 10000; ++i) {
    if (const std::string change = job.update(Clock::now(), timer, {}); !change.empty()) {
      return change;
    }
    std::this_thread::sleep_for(1ms);
  }
  return {};
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_run_without_a_job_has_its_options_end) {
  const auto now = Clock::now();
  JobEnd limited({.begin = now, .limit = 50});
  JobEnd free({.begin = now});

  BOOST_TEST((limited.allowed().end == now + 50s));
  BOOST_TEST(limited.allowed().source == "--time-limit");
  BOOST_TEST(!free.allowed().end);
}

BOOST_AUTO_TEST_CASE(the_earlier_of_the_options_end_and_slurms_counts) {
  FakeSlurm slurm;
  JobEnd shorter(slurm.options(100));
  JobEnd longer(slurm.options(10000));

  const TimeAllowed by_option = shorter.allowed();
  const TimeAllowed by_slurm = longer.allowed();

  BOOST_TEST(seconds_left(by_option.end) <= 100);
  BOOST_TEST(by_option.source == "--time-limit");
  BOOST_TEST((seconds_left(by_slurm.end) > 100 && seconds_left(by_slurm.end) <= 3600));
  BOOST_TEST(by_slurm.source == "Slurm job 12");
}

BOOST_AUTO_TEST_CASE(slurms_answer_comes_before_the_variable) {
  FakeSlurm slurm;
  JobEndOptions options = slurm.options();
  options.variables = {.seconds_left = 1, .problem = {}};
  JobEnd job(std::move(options));

  const TimeAllowed allowed = job.allowed();

  BOOST_TEST(seconds_left(allowed.end) > 3000);
  BOOST_TEST(allowed.problems.empty());
}

BOOST_AUTO_TEST_CASE(without_an_answer_the_variable_counts_until_there_is_one) {
  FakeSlurm slurm;
  slurm.kind = Kind::none;
  JobEndOptions options = slurm.options();
  options.variables = {.seconds_left = 500, .problem = {}};
  JobEnd job(std::move(options));

  const TimeAllowed allowed = job.allowed();
  StopTimer timer(allowed.end, 0);
  slurm.kind = Kind::ends;

  BOOST_TEST((seconds_left(allowed.end) > 400 && seconds_left(allowed.end) <= 500));
  BOOST_TEST(contains(allowed.problems.at(0), "squeue says 'busy'"));
  BOOST_TEST(contains(allowed.problems.at(0), "SLURM_JOB_END_TIME counts"));
  BOOST_TEST(contains(line_of(job, timer), "SLURM_JOB_END_TIME was wrong"));
}

BOOST_AUTO_TEST_CASE(a_refused_variable_and_a_silent_slurm_leave_no_end_and_both_are_told) {
  FakeSlurm slurm;
  slurm.kind = Kind::none;
  JobEndOptions options = slurm.options();
  options.variables = {.seconds_left = std::nullopt, .problem = "it is another job's"};
  JobEnd job(std::move(options));

  const TimeAllowed allowed = job.allowed();

  BOOST_TEST(!allowed.end);
  BOOST_TEST(allowed.problems.size() == 2);
  BOOST_TEST(contains(allowed.problems.back(), "give --time-limit"));
}

BOOST_AUTO_TEST_CASE(a_job_that_has_ended_limits_nothing) {
  FakeSlurm slurm;
  slurm.kind = Kind::unknown_job;
  JobEndOptions options = slurm.options();
  options.variables = {.seconds_left = 1, .problem = {}};
  JobEnd job(std::move(options));

  const TimeAllowed allowed = job.allowed();

  BOOST_TEST(!allowed.end);
  BOOST_TEST(contains(allowed.problems.at(0), "no running job 12"));
}

BOOST_AUTO_TEST_CASE(a_raised_limit_prevents_the_stop_and_is_told_with_both_ends) {
  FakeSlurm slurm;
  slurm.left = 1;
  JobEnd job(slurm.options());
  StopTimer timer(job.allowed().end, 0);
  BOOST_TEST(timer.is_due(Clock::now(), {}));

  slurm.left = 3600;
  const std::string line = line_of(job, timer);

  BOOST_TEST(!timer.is_due(Clock::now(), {}));
  BOOST_TEST(contains(line, "time: Slurm job 12 ends at "));
  BOOST_TEST(contains(line, ", not at "));
  BOOST_TEST(contains(line, "its limit was raised"));
}

BOOST_AUTO_TEST_CASE(a_lowered_a_removed_and_a_new_limit_are_told) {
  FakeSlurm slurm;
  JobEnd job(slurm.options());
  StopTimer timer(job.allowed().end, 0);

  slurm.left = 2;
  BOOST_TEST(contains(line_of(job, timer), "its limit was lowered"));
  BOOST_TEST(timer.is_due(Clock::now(), {}));
  slurm.kind = Kind::unlimited;
  BOOST_TEST(contains(line_of(job, timer), "has no time limit now"));
  BOOST_TEST(!timer.is_due(Clock::now(), {}));
  slurm.kind = Kind::ends;
  BOOST_TEST(contains(line_of(job, timer), "time: Slurm job 12 ends at "));
  BOOST_TEST(timer.is_due(Clock::now(), {}));
}

BOOST_AUTO_TEST_CASE(a_running_job_keeps_its_end_while_slurm_does_not_answer) {
  FakeSlurm slurm;
  slurm.left = 1;
  JobEnd job(slurm.options());
  StopTimer timer(job.allowed().end, 0);

  slurm.kind = Kind::none;
  const int asked = slurm.asked;
  while (slurm.asked < asked + 3) {
    BOOST_TEST(job.update(Clock::now(), timer, {}).empty());
    std::this_thread::sleep_for(1ms);
  }

  BOOST_TEST(timer.is_due(Clock::now(), {}));
}

BOOST_AUTO_TEST_CASE(no_update_and_no_end_waits_for_a_busy_slurm) {
  std::atomic<bool> asking = false;
  StopTimer timer(std::nullopt, 0);
  {
    JobEnd job({.begin = Clock::now(),
                .job = "12",
                .ask =
                    [&](const std::stop_token& stop) {
                      asking = true;
                      while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
                      return SlurmAnswer{};
                    },
                .times = {.interval = 0s, .patience = 0s}});
    BOOST_TEST(contains(job.allowed().problems.at(0), "squeue says 'nothing for 0 s'"));
    while (!asking) std::this_thread::sleep_for(1ms);
    BOOST_TEST(job.update(Clock::now(), timer, {}).empty());
  }
}

BOOST_AUTO_TEST_CASE(slurm_is_asked_rarely_and_again_shortly_before_the_stop) {
  const AskTimes times;
  const auto now = Clock::now();

  BOOST_TEST(!asks_now(now, now - 1min, std::nullopt, times));
  BOOST_TEST(asks_now(now, now - 6min, std::nullopt, times));
  BOOST_TEST(!asks_now(now, now - 1min, now + 1h, times));
  BOOST_TEST(asks_now(now, now - 30s, now + 50s, times));
  BOOST_TEST(!asks_now(now, now - 5s, now + 50s, times));
  BOOST_TEST(asks_now(now, now - 30s, now - 1s, times));
}

BOOST_AUTO_TEST_CASE(a_limit_that_leaves_no_time_is_refused_with_its_remedy) {
  const TimeAllowed by_slurm{.end = Clock::now(), .source = "Slurm job 12", .problems = {}};
  const TimeAllowed by_option{.end = Clock::now(), .source = "--time-limit", .problems = {}};

  BOOST_TEST(advise_on_time(by_slurm, {.left = 4, .save = 1, .stop = 7}, {}).refusal ==
             "0:04 left until Slurm job 12 ends the run (the ranks need 5 s to end, so no step "
             "would be kept); submit with a longer --time");
  const TimeAdvice soft = advise_on_time(by_option, {.left = 1, .save = 1, .stop = 7}, {});
  BOOST_TEST(soft.refusal.empty());
  BOOST_TEST(contains(soft.warnings.at(0), "stops after its first step"));
  BOOST_TEST(contains(soft.warnings.at(0), "give a longer --time-limit"));
  const TimeAllowed guessed{.end = Clock::now(), .source = "SLURM_JOB_END_TIME", .problems = {}};
  BOOST_TEST(advise_on_time(guessed, {.left = 1, .save = 1, .stop = 7}, {}).refusal.empty());
  BOOST_TEST(advise_on_time({}, {.left = 0, .save = 1, .stop = 7}, {}).refusal.empty());
}

BOOST_AUTO_TEST_CASE(a_limit_that_may_be_too_short_and_a_distant_save_are_warned_of) {
  const TimeAllowed allowed{.end = Clock::now(), .source = "Slurm job 12", .problems = {}};
  const TimeAdvice tight = advise_on_time(allowed, {.left = 20, .save = 14, .stop = 26}, {});
  const TimeAdvice distant =
      advise_on_time(allowed, {.left = 1800, .save = 1, .stop = 7}, {.seconds = 7200});
  const TimeAdvice fine =
      advise_on_time(allowed, {.left = 1800, .save = 1, .stop = 7}, {.seconds = 600});

  BOOST_TEST(tight.refusal.empty());
  BOOST_TEST(contains(tight.warnings.at(0), "stops after its first step"));
  BOOST_TEST(contains(distant.warnings.at(0), "--save-every 2:00:00 is longer than the 30:00"));
  BOOST_TEST((fine.refusal.empty() && fine.warnings.empty()));
}
