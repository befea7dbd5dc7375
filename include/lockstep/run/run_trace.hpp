#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/run/trace_text.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/root_channel.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep {

/// The rows of a run's trace, besides those of communicators.
struct TraceRows {
  static constexpr const char* steps = "steps";
  static constexpr const char* phases = "phases";
  static constexpr const char* evaluation = "evaluation batches";
  static constexpr const char* save = "save";
};

/// A recorder with the rows that every rank has; null without --profile-steps.
[[nodiscard]] std::unique_ptr<TraceRecorder> make_trace_recorder(const Config& config);

/// Null if `recorder` is null.
[[nodiscard]] TraceRow* evaluation_row(TraceRecorder* recorder);

struct RunTraceOptions {
  StepRange steps;
  std::string run_dir;
  Communicator& comm;
  const ProcessGrid& grid;
};

/// Records the steps of --profile-steps and writes trace-FIRST-LAST.json, named after the recorded
/// steps, to the run directory: every rank's events in rank 0's time.
class RunTrace final {
 public:
  /// Collective. All references outlive it.
  RunTrace(const RunTraceOptions& options, TraceRecorder& recorder, PhaseBoard& board,
           RunReporter& reporter);

  // Call at step boundaries. Collective.
  /// True if it compared clocks, which takes time.
  bool step_begins(std::int64_t step);
  /// True if it wrote the trace.
  bool step_ended(std::int64_t step);
  /// Whether recording begins or ends after this step.
  [[nodiscard]] bool is_edge(std::int64_t step) const noexcept {
    return step + 1 == steps_.first || step == steps_.last;
  }
  /// Call after the last step; writes a recording that is not written yet.
  void run_ends(std::int64_t step);

  [[nodiscard]] TraceRecorder& recorder() noexcept { return recorder_; }
  /// Phases of this rank's training thread.
  [[nodiscard]] TraceRow& phases() noexcept { return recorder_.row(TraceRows::phases); }
  [[nodiscard]] TraceRow& saves() noexcept { return recorder_.row(TraceRows::save); }

 private:
  void write(std::int64_t last_step);
  void send();
  void gather(const FilePath& path, std::int64_t last_step);

  StepRange steps_;
  std::string run_dir_;
  Communicator& comm_;
  TraceRecorder& recorder_;
  PhaseBoard& board_;
  RunReporter& reporter_;
  RootChannel channel_;
  RankTrace mine_;
  std::int64_t first_step_ = 0;  ///< first recorded step; 0: none yet
};

}  // namespace lockstep
