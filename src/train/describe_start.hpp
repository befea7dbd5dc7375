#pragma once

#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/train_step.hpp"

#include <optional>
#include <string>

namespace lockstep {

struct StartParts {
  const RunPlan& plan;
  const BatchGeometry& geometry;
  Engine& engine;
  ParallelState& parallel;
  const Optimizer& optimizer;
  const DatasetInfo& data;
  const TrainStep& step;
  const ThreadBinding& binding;
  int shard_group = 1;  ///< its size in ranks
};

/// Reports the model, the data, the hardware and the memory that a rank needs.
void describe_start(RunReporter& reporter, const StartParts& parts);

/// What a step's bits depend on, as in TrainingState; empty or nullopt: unknown.
struct BitSources {
  std::optional<std::string> arithmetic = {};
  std::optional<std::string> all_reduce = {};
};
/// Reports the algorithm of the all-reduce, and each source that differs from the checkpoint's.
void describe_bit_sources(RunReporter& reporter, const BitSources& now,
                          const BitSources& checkpoints);

}  // namespace lockstep
