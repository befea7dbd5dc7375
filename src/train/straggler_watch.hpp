#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/run_reporter.hpp"
#include "lockstep/train/step_times.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Measures this rank's steps, and compares all ranks at the end of each epoch.
class StragglerWatch final {
 public:
  struct Options {
    double factor = 1.5;             ///< 0: no rank is reported
    std::vector<std::string> hosts;  ///< by rank
  };
  /// `comm` outlives it.
  StragglerWatch(Communicator& comm, Options options) : comm_(comm), options_(std::move(options)) {}

  void add(const PhaseTimes& times) { times_.add(times); }
  /// Collective. Logs this rank's times, and reports slow ranks.
  void close_epoch(std::int64_t step, std::int64_t epoch, RunReporter& reporter);
  /// Prints the hosts that were slow in any epoch, as an option of sbatch.
  void close_run(RunReporter& reporter) const;

 private:
  Communicator& comm_;
  Options options_;
  StepTimes times_;
  std::vector<std::string> slow_hosts_;
};

}  // namespace lockstep
