#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/data/staging.hpp"
#include "lockstep/health/job_end.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/runtime/start_clock.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/training_session.hpp"
#include "training_steps.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// What computes and what reduces, as in TrainingState; the bits of a step depend on both. Empty:
/// unknown.
struct Numerics {
  std::string backend;
  std::string all_reduce;
  [[nodiscard]] static Numerics of(const TrainingState& state);
};

struct StartParts {
  const RunPlan& plan;
  const BatchGeometry& geometry;
  const DatasetInfo& data;
  const ThreadBinding& binding;
  TrainingSession& session;
  const TrainingSteps& steps;
  StateBytes bytes;
  bool resizes;                   ///< training images have several sizes
  const DatasetInfo* validation;  ///< null: there is no validation split
  bool resizes_to_evaluate;       ///< its images have another size
  Numerics numerics;
  Numerics checkpoints_numerics;
  const TimeAllowed& time;
  double stop_seconds;                           ///< that the run stops before its end
  const Staging* staging;                        ///< null: none
  const std::vector<ConfigDifference>& changes;  ///< of options since the checkpoint
  const std::vector<std::string>& hosts;         ///< by rank
};

/// Reports the model, the data, the hardware, the memory that a rank needs, evaluations, what
/// differs from the checkpoint, and when the run stops.
void describe_start(RunReporter& reporter, const StartParts& parts);

/// Reports the end of the start, whose phases `clock` has timed.
void report_start(RunReporter& reporter, const StartParts& parts, const TrainingState& state,
                  const StartClock& clock);

/// Warns of classes that are evaluated and never trained.
void describe_untrained(RunReporter& reporter, const DatasetInfo& train,
                        const DatasetInfo& validation);

/// Reports the checkpoint that a run continues, and what is left out between it and the state
/// `now`.
void describe_resume(RunReporter& reporter, const RunStart& from, const TrainingState& now,
                     const BatchGeometry& geometry);

/// Reports that the average of the weights starts at, or ends with, the checkpoint `from.reader`.
void describe_average(RunReporter& reporter, const Config& config, const RunStart& from);

}  // namespace lockstep
