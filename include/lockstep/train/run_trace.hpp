#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/root_channel.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/run_reporter.hpp"
#include "lockstep/train/trace_text.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// The rows of a run's trace, beside those of communicators.
struct TraceRows {
  static constexpr const char* steps = "steps";
  static constexpr const char* phases = "phases";
  static constexpr const char* evaluation = "evaluation batches";
  static constexpr const char* save = "save";
};

/// With all rows that every rank has; null where --profile-steps asks for none.
[[nodiscard]] std::unique_ptr<TraceRecorder> make_trace_recorder(const Config& config);

/// Null where there is no recorder.
[[nodiscard]] TraceRow* evaluation_row(TraceRecorder* recorder);

struct RunTraceOptions {
  StepRange steps;
  std::string run_dir;
  Communicator& comm;
  const ProcessGrid& grid;
};

/// Records the steps that --profile-steps asks for and writes trace-FIRST-LAST.json, named by the
/// steps that it holds, into the run directory. Every rank's events, by rank 0's clock.
class RunTrace final {
 public:
  /// Collective. All references outlive it.
  RunTrace(const RunTraceOptions& options, TraceRecorder& recorder, PhaseBoard& board,
           RunReporter& reporter);

  // At step boundaries. Collective.
  /// Whether it compared clocks, which takes time.
  bool step_begins(std::int64_t step);
  /// Whether it wrote.
  bool step_ended(std::int64_t step);
  /// Whether recording begins or ends behind this step.
  [[nodiscard]] bool is_edge(std::int64_t step) const noexcept {
    return step + 1 == steps_.first || step == steps_.last;
  }
  /// Writes what there is where that was not done; after the last step.
  void run_ends(std::int64_t step);

  [[nodiscard]] TraceRecorder& recorder() noexcept { return recorder_; }
  /// What this rank's training thread is at.
  [[nodiscard]] TraceRow& phases() noexcept { return recorder_.row(TraceRows::phases); }
  [[nodiscard]] TraceRow& saves() noexcept { return recorder_.row(TraceRows::save); }

 private:
  void write(std::int64_t last_step);
  void send();
  void gather(const std::string& path, std::int64_t last_step);

  StepRange steps_;
  std::string run_dir_;
  Communicator& comm_;
  TraceRecorder& recorder_;
  PhaseBoard& board_;
  RunReporter& reporter_;
  RootChannel channel_;
  RankTrace mine_;
  std::int64_t first_step_ = 0;  ///< recorded; 0: none yet
};

}  // namespace lockstep
