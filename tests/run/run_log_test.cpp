#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/run_log.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <limits>

using namespace lockstep;
using Json = nlohmann::ordered_json;
using test::read_file;
using test::TemporaryDirectory;
using test::write_file;

BOOST_AUTO_TEST_CASE(each_object_is_a_line) {
  const TemporaryDirectory directory;
  MetricsLog log(directory.path(), -1);

  BOOST_TEST(log.write({{"event", "step"}, {"step", 1}, {"loss", 0.5}}));
  BOOST_TEST(log.write(
      {{"event", "stop"}, {"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}}));

  BOOST_TEST(read_file(directory / "metrics.jsonl") ==
             "{\"event\":\"step\",\"step\":1,\"loss\":0.5}\n{\"event\":\"stop\",\"step\":2,"
             "\"loss\":null}\n");
}

BOOST_AUTO_TEST_CASE(text_that_is_not_utf8_is_still_written) {
  const TemporaryDirectory directory;
  MetricsLog log(directory.path(), -1);

  BOOST_TEST(log.write({{"event", "checkpoint"}, {"path", "caf\xe9"}}));

  BOOST_TEST(Json::parse(read_file(directory / "metrics.jsonl")).at("event") == "checkpoint");
}

BOOST_AUTO_TEST_CASE(resuming_removes_later_steps_and_a_torn_line) {
  const TemporaryDirectory directory;
  const std::string kept =
      "{\"event\":\"start\",\"step\":0}\n{\"event\":\"step\",\"step\":10}\n{\"event\":"
      "\"checkpoint\",\"step\":10}\n";
  write_file(directory / "metrics.jsonl",
             "{\"event\":\"start\",\"step\":0}\n{\"event\":\"step\",\"step\":10}\n{\"event\":"
             "\"step\",\"step\":11}\n"
             "not json\n{\"event\":\"checkpoint\",\"step\":10}\n{\"event\":\"step\",\"step\":1");

  MetricsLog log(directory.path(), 10);

  BOOST_TEST(read_file(directory / "metrics.jsonl") == kept);
  log.write({{"event", "resume"}, {"step", 10}});
  BOOST_TEST(read_file(directory / "metrics.jsonl") ==
             kept + "{\"event\":\"resume\",\"step\":10}\n");
}

BOOST_AUTO_TEST_CASE(a_fresh_run_begins_an_empty_file) {
  const TemporaryDirectory directory;
  write_file(directory / "metrics.jsonl", "{\"event\":\"start\",\"step\":0}\n");

  const MetricsLog log(directory.path(), -1);

  BOOST_TEST(read_file(directory / "metrics.jsonl").empty());
}

BOOST_AUTO_TEST_CASE(a_line_that_does_not_fit_is_dropped_completely) {
  const TemporaryDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit size{50, 50};
    ::setrlimit(RLIMIT_FSIZE, &size);
    MetricsLog log(directory.path(), -1);
    const bool first = log.write({{"event", "step"}, {"step", 1}});
    const bool second = log.write({{"event", "step"}, {"text", std::string(100, 'x')}});
    const bool third = log.write({{"step", 3}});
    ::_exit(first && !second && third ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);

  BOOST_TEST(status == 0);
  BOOST_TEST(read_file(directory / "metrics.jsonl") ==
             "{\"event\":\"step\",\"step\":1}\n{\"step\":3}\n");
}

BOOST_AUTO_TEST_CASE(a_ranks_log_begins_with_its_identity_and_is_appended_to) {
  const TemporaryDirectory directory;
  const RankIdentity identity{.rank = 3,
                              .world_size = 8,
                              .local_rank = 1,
                              .host = "node7",
                              .device = "cpu",
                              .cores = "4-7"};

  {
    RankLog log(directory.path(), identity);
    log.info("epoch {} done");  // braces are not formatted
    log.warn("slow disk");
    BOOST_TEST(read_file(directory / "log/rank-00003.log").find("slow disk\n") !=
               std::string::npos);
  }
  RankLog again(directory.path(), identity);

  const std::string text = read_file(directory / "log/rank-00003.log");
  const std::string opening = "rank 3 of 8, local rank 1, host node7, device cpu, cores 4-7\n";
  BOOST_TEST(text.find(opening) != std::string::npos);
  BOOST_TEST(text.find(opening) != text.rfind(opening));
  BOOST_TEST(text.find(" I epoch {} done\n") != std::string::npos);
  BOOST_TEST(text.find(" W slow disk\n") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_log_that_cannot_be_opened_is_cannot_write) {
  const TemporaryDirectory directory;
  write_file(directory / "log", "a file where a directory should be");
  const auto cannot_write = [](const Error& error) {
    return error.status() == ExitStatus::cannot_write;
  };

  BOOST_CHECK_EXCEPTION(RankLog(directory.path(), {}), Error, cannot_write);
  BOOST_CHECK_EXCEPTION(MetricsLog(directory / "absent", -1), Error, cannot_write);
}
