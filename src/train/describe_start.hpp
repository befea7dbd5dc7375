#pragma once

#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/train_step.hpp"

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

/// Reports the algorithm of the all-reduce, and that of the checkpoint if it differs. Empty:
/// unknown.
void describe_all_reduce(RunReporter& reporter, const std::string& algorithm,
                         const std::string& checkpoints_algorithm);

}  // namespace lockstep
