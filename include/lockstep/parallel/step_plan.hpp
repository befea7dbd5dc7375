#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/graph/graph.hpp"

#include <vector>

namespace lockstep {

enum class StepCollective { all_reduce, reduce_scatter, all_gather };
/// The ranks of a collective: all, a shard group, or the ranks that keep the same shard.
enum class StepRanks { all, group, replicas };

[[nodiscard]] const char* to_string(StepCollective what) noexcept;
[[nodiscard]] const char* to_string(StepRanks ranks) noexcept;

/// What each rank does next in a step.
struct StepAction {
  enum class Kind { compute, start, wait };
  Kind kind = Kind::compute;
  double seconds = 0;  ///< of computation
  int collective = 0;  ///< that starts, or is waited for; they are numbered from 0 by their start
  StepCollective what = StepCollective::all_reduce;
  StepRanks ranks = StepRanks::all;
  double bytes = 0;  ///< of all blocks
};

/// A step of one rank, from forward to the end of all reductions.
struct StepPlan {
  std::vector<StepAction> actions;
  int collectives = 0;
  int shard_group = 1;  ///< ranks of StepRanks::group
  [[nodiscard]] double compute_seconds() const noexcept;
};

/// How fast one rank computes alone, and the sizes that decide what it sends.
struct StepPlanOptions {
  int ranks = 1;
  double images_per_second = 0;
};

/// A step of one rank, as the engine for CPUs computes it: the ops of a micro-step, then those that
/// end the step. Units are those of --shard, or the buckets of gradients that are reduced together.
struct ParallelSteps {
  StepGraph steps;
  int shard_group = 1;                      ///< ranks over which the state is sharded
  std::size_t micro_ops = 0;                ///< ops of a micro-step
  std::vector<std::size_t> gathered_bytes;  ///< by unit; of all ranks' parts; empty: not sharded
  std::vector<std::size_t> reduced_bytes;   ///< the same, without the tail's
  std::size_t tail_bytes = 0;
  bool tail_joins_last = false;  ///< as StepEnd

  [[nodiscard]] bool is_sharded() const noexcept { return !gathered_bytes.empty(); }
};
[[nodiscard]] ParallelSteps parallel_steps(const Config& config, const Graph& graph, int ranks);

/// What an op that starts or awaits a collective sends, as an action that starts it.
[[nodiscard]] StepAction collective_of(const StepOp& op, const ParallelSteps& steps);

/// Whether an op of a norm's node sums over all ranks, for synchronised batch norms.
[[nodiscard]] bool sums_over_ranks(const StepOp& op, const Config& config, const Graph& graph);

/// Plans a step from bucket_plan, the units and the data types of the run's configuration. Forward
/// takes a third of a micro-step and backward two; within them, ops take time in proportion to
/// their multiply-adds. Reads from config: shard, shard_group, shard_unit, bucket_mb, accumulate,
/// accumulate_full_gradients, batch_size, batch_norm, recompute, optimizer, clip_grad_norm,
/// precision and the communication data types. Synchronised norms sum 2 C + 1 values in fp64
/// forward, and 2 C in fp32 backward, as on GPUs. Pure.
[[nodiscard]] StepPlan plan_step(const Config& config, const Graph& graph,
                                 const StepPlanOptions& options);

}  // namespace lockstep
