#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/run/run_reporter.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>

using namespace lockstep;
using test::read_file;
using test::TemporaryDirectory;

namespace {

/// The files of the run directory, by name, without the logs.
std::map<std::string, std::string> record_of(const TemporaryDirectory& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    if (entry.is_regular_file()) files[entry.path().filename()] = read_file(entry.path());
  }
  return files;
}

void report_everything(RunReporter& reporter, std::int64_t step) {
  reporter.started({}, {});
  StepReport of_step{};
  of_step.step = step;
  reporter.step(of_step);
  EpochReport of_epoch{};
  of_epoch.step = step;
  reporter.epoch(of_epoch);
  reporter.evaluation(step, 0, {});
  reporter.saved({.step = step, .path = "step.h5", .seconds = 1, .error = std::nullopt});
  reporter.stopped(step, 0, "finished");
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_slow_rank_is_in_its_own_log_and_in_that_of_rank_0) {
  for (const int rank : {0, 1, 2}) {
    const TemporaryDirectory directory;
    const ProcessGrid grid{.rank = rank, .world_size = 3, .host = "node"};
    {
      RunReporter reporter({.run_dir = directory.path(),
                            .grid = grid,
                            .cores = "",
                            .progress = Progress::plain,
                            .log_every = 1});
      StragglerReport slow{};
      slow.host = "node7";
      slow.straggler = {.rank = 2, .factor = 3};
      reporter.straggler(slow);
    }
    const std::string log = read_file(directory / fmt::format("log/rank-{:05}.log", rank));
    BOOST_TEST((log.find("rank 2 (node7) is slow") != std::string::npos) == (rank != 1), log);
  }
}

BOOST_AUTO_TEST_CASE(a_job_that_no_longer_holds_its_directory_does_not_change_its_files) {
  const TemporaryDirectory directory;
  const ProcessGrid grid{.host = "node"};
  bool holds = true;
  RunReporter reporter({.run_dir = directory.path(),
                        .grid = grid,
                        .cores = "",
                        .progress = Progress::plain,
                        .log_every = 1,
                        .holds_directory = [&] { return holds; }});
  report_everything(reporter, 1);
  const auto before = record_of(directory);
  BOOST_TEST(before.at("metrics.jsonl").find("\"event\":\"checkpoint\"") != std::string::npos);
  BOOST_TEST(before.size() == 2U);  // and TensorBoard's events

  holds = false;
  report_everything(reporter, 2);

  BOOST_TEST((record_of(directory) == before));
}
