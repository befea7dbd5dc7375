#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "lockstep/train/run_plan.hpp"

#include <cstddef>
#include <string>

namespace lockstep {

struct StartParts {
  const RunPlan& plan;
  const BatchGeometry& geometry;
  Engine& engine;
  ParallelState& parallel;
  const Optimizer& optimizer;
  const DatasetInfo& data;
  std::size_t activation_bytes;
  const ThreadBinding& binding;
  int shard_group = 1;  ///< its size in ranks
};

/// Reports the model, the data, the hardware and the memory that a rank needs.
void describe_start(RunReporter& reporter, const StartParts& parts);

/// Reports the checkpoint that a run continues, and what is left out between it and the state
/// `now`.
void describe_resume(RunReporter& reporter, const RunStart& from, const TrainingState& now,
                     const BatchGeometry& geometry);

/// Reports that the average of the weights starts at, or ends with, the checkpoint `from.reader`.
void describe_average(RunReporter& reporter, const Config& config, const RunStart& from);

/// What computes and what reduces, as in TrainingState; the bits of a step depend on both. Empty:
/// unknown.
struct Numerics {
  std::string backend;
  std::string all_reduce;
  [[nodiscard]] static Numerics of(const TrainingState& state);
};
/// Reports the algorithm of the all-reduce, and what differs from the checkpoint.
void describe_numerics(RunReporter& reporter, const Numerics& now, const Numerics& checkpoints);

}  // namespace lockstep
