#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/health/step_times.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Measures this rank's steps, and compares all ranks at ends of epochs.
class StragglerWatch final {
 public:
  struct Options {
    double factor = 1.5;             ///< 0: no rank is reported
    std::vector<std::string> hosts;  ///< by rank
  };
  /// `comm` outlives it.
  StragglerWatch(Communicator& comm, Options options) : comm_(comm), options_(std::move(options)) {}

  void add(const PhaseTimes& times) { times_.add(times); }
  /// This rank's times since the last call.
  [[nodiscard]] RankTimes take();
  /// Collective: the slow ranks; `mine` is from take().
  [[nodiscard]] std::vector<StragglerReport> compare(const RankTimes& mine, std::int64_t step,
                                                     std::int64_t epoch);
  /// Slow hosts of all comparisons, once for each report.
  [[nodiscard]] const std::vector<std::string>& slow_hosts() const noexcept { return slow_hosts_; }

 private:
  Communicator& comm_;
  Options options_;
  StepTimes times_;
  std::vector<std::string> slow_hosts_;
};

}  // namespace lockstep
