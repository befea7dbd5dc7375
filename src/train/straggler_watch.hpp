#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/train/run_reporter.hpp"
#include "lockstep/train/step_times.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Measures this rank's steps, and compares the ranks' at each epoch's end.
class StragglerWatch final {
 public:
  struct Options {
    double factor = 1.5;             ///< 0: nobody is named
    std::vector<std::string> hosts;  ///< by rank
  };
  /// `comm` outlives it.
  StragglerWatch(Communicator& comm, Options options) : comm_(comm), options_(std::move(options)) {}

  void add(const PhaseTimes& times) { times_.add(times); }
  /// Collective. Notes this rank's times, and warns of ranks that are slow.
  void close_epoch(std::int64_t step, std::int64_t epoch, RunReporter& reporter);
  /// Says which hosts were slow in any epoch, as sbatch takes them.
  void close_run(RunReporter& reporter) const;

 private:
  Communicator& comm_;
  Options options_;
  StepTimes times_;
  std::vector<std::string> slow_hosts_;
};

}  // namespace lockstep
