#include "lockstep/health/slurm_time.hpp"

#include "io/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

using namespace lockstep;

namespace {

using Kind = SlurmAnswer::Kind;
using Variables = std::map<std::string, std::string>;

VariableLookup lookup_in(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

/// A squeue in PATH, and PATH as before afterwards.
class FakeSqueue final {
 public:
  explicit FakeSqueue(const std::string& body) : path_(std::getenv("PATH")) {
    const std::string program = directory_ / "squeue";
    std::ofstream(program) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    ::setenv("PATH", (directory_.path() + ":" + path_).c_str(), 1);
  }
  ~FakeSqueue() { ::setenv("PATH", path_.c_str(), 1); }
  FakeSqueue(const FakeSqueue&) = delete;
  FakeSqueue& operator=(const FakeSqueue&) = delete;

 private:
  test::TemporaryDirectory directory_;
  std::string path_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(slurms_formats_of_time_are_parsed) {
  BOOST_TEST(parse_time_left("1-02:03:04").value_or(-1) == 86400 + 2 * 3600 + 3 * 60 + 4);
  BOOST_TEST(parse_time_left("02:03:04").value_or(-1) == 2 * 3600 + 3 * 60 + 4);
  BOOST_TEST(parse_time_left("3:04").value_or(-1) == 3 * 60 + 4);
  BOOST_TEST(parse_time_left("0:00").value_or(-1) == 0);
  for (const char* words : {"UNLIMITED", "NOT_SET", "INVALID", "", "-", "1:2:3:4", "1-",
                            "3:", "x-1:00", "nan", "inf"}) {
    BOOST_TEST(!parse_time_left(words).has_value(), words);
  }
}

BOOST_AUTO_TEST_CASE(the_line_of_the_job_itself_is_read) {
  // The last element of an array has the array's number; squeue then lists all elements.
  const SlurmAnswer answer = read_squeue("13 5:00\n14 2:00\n12 1:30\n", 0, "12");

  BOOST_TEST((answer.kind == Kind::ends));
  BOOST_TEST(answer.seconds_left == 90);
  BOOST_TEST((read_squeue("1:30\n", 0, "12").kind == Kind::none));
}

BOOST_AUTO_TEST_CASE(warnings_of_squeue_do_not_hide_its_answer) {
  BOOST_TEST(read_squeue("squeue: warning: old\n12 1:30\n", 0, "12").seconds_left == 90);
}

BOOST_AUTO_TEST_CASE(a_job_without_a_limit_one_beyond_it_and_one_that_has_ended_are_told_apart) {
  BOOST_TEST((read_squeue("12 UNLIMITED\n", 0, "12").kind == Kind::unlimited));
  BOOST_TEST((read_squeue("12 NOT_SET\n", 0, "12").kind == Kind::unlimited));
  BOOST_TEST((read_squeue("12 INVALID\n", 0, "12").kind == Kind::ends));
  BOOST_TEST((read_squeue("", 0, "12").kind == Kind::unknown_job));
  BOOST_TEST((read_squeue("slurm_load_jobs error: Invalid job id specified\n", 1, "12").kind ==
              Kind::unknown_job));
  const SlurmAnswer down = read_squeue("slurm_load_jobs error: down\nmore\n", 1, "12");
  BOOST_TEST((down.kind == Kind::none));
  BOOST_TEST(down.text == "slurm_load_jobs error: down");
}

BOOST_AUTO_TEST_CASE(squeue_does_not_get_the_users_settings_of_it) {
  const FakeSqueue squeue(
      "env | grep -q -e ^SQUEUE_ -e ^SLURM_TIME_FORMAT -e ^SLURM_CLUSTERS && exit 3\n"
      "case $* in '--noheader --jobs=12 --format=%A %L') echo 12 1:30 ;; esac");
  for (const char* name :
       {"SQUEUE_STATES", "SQUEUE_FORMAT", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS"}) {
    ::setenv(name, "other", 1);
  }

  const SlurmAnswer answer = ask_slurm("12");

  for (const char* name :
       {"SQUEUE_STATES", "SQUEUE_FORMAT", "SLURM_TIME_FORMAT", "SLURM_CLUSTERS"}) {
    ::unsetenv(name);
  }
  BOOST_TEST((answer.kind == Kind::ends));
  BOOST_TEST(answer.seconds_left == 90);
}

BOOST_AUTO_TEST_CASE(a_squeue_that_fails_is_no_answer) {
  const FakeSqueue squeue("echo 12 1:3x; echo failed >&2; exit 1");

  const SlurmAnswer answer = ask_slurm("12");

  BOOST_TEST((answer.kind == Kind::none));
  BOOST_TEST(answer.text == "12 1:3x");
}

BOOST_AUTO_TEST_CASE(a_missing_squeue_is_no_answer) {
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nonexistent", 1);

  const SlurmAnswer answer = ask_slurm("12");

  ::setenv("PATH", path.c_str(), 1);
  BOOST_TEST((answer.kind == Kind::none));
  BOOST_TEST(answer.text == "squeue: No such file or directory");
}

BOOST_AUTO_TEST_CASE(the_variable_of_the_end_is_used_if_it_is_plausible) {
  BOOST_TEST(time_of_variables(lookup_in({{"SLURM_JOB_END_TIME", "1500"}}), 1000)
                 .seconds_left.value_or(-1) == 500);
  BOOST_TEST(time_of_variables(
                 lookup_in({{"SLURM_JOB_END_TIME", "1500"}, {"SLURM_JOB_START_TIME", "900"}}), 1000)
                 .seconds_left.value_or(-1) == 500);
  BOOST_TEST(time_of_variables(lookup_in({}), 1000).problem.empty());
}

BOOST_AUTO_TEST_CASE(an_end_of_another_job_is_not_used) {
  const Variables ended{{"SLURM_JOB_END_TIME", "400"}};
  const Variables reversed{{"SLURM_JOB_END_TIME", "1500"}, {"SLURM_JOB_START_TIME", "1600"}};
  const Variables later{{"SLURM_JOB_END_TIME", "15000"}, {"SLURM_JOB_START_TIME", "5000"}};
  const Variables words{{"SLURM_JOB_END_TIME", "tomorrow"}};

  for (const Variables& variables : {ended, reversed, later, words}) {
    const VariableTime time = time_of_variables(lookup_in(variables), 1000);
    BOOST_TEST(!time.seconds_left);
    BOOST_TEST(time.problem.find("is not used") != std::string::npos, time.problem);
  }
  BOOST_TEST(time_of_variables(lookup_in(ended), 1000).problem ==
             "SLURM_JOB_END_TIME=400 is not used (in the past, so it is another job's)");
}

BOOST_AUTO_TEST_CASE(only_a_number_is_a_job) {
  BOOST_TEST(slurm_job(lookup_in({})).empty());
  BOOST_TEST(slurm_job(lookup_in({{"SLURM_JOB_ID", ""}})).empty());
  BOOST_TEST(slurm_job(lookup_in({{"SLURM_JOB_ID", "$(touch harm)"}})).empty());
  BOOST_TEST(slurm_job(lookup_in({{"SLURM_JOB_ID", "-1"}})).empty());
  BOOST_TEST(slurm_job(lookup_in({{"SLURM_JOB_ID", "12"}})) == "12");
}
