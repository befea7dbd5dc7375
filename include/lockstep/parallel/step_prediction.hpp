#pragma once

#include "lockstep/parallel/step_plan.hpp"

namespace lockstep {

/// Ranks and what connects them. Rates are in bytes per second, of each direction.
struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  double node_rate = 0;      ///< of all links of a node together
  double local_rate = 0;     ///< of a rank to the ranks of its node
  double round_seconds = 0;  ///< latency of one round of messages
  /// Computation that a byte costs which a rank sends to another node and one which it receives:
  /// on CPUs, training's own thread sends, receives and adds, and also does what takes local_rate.
  /// 0 for GPUs.
  double host_seconds_per_byte = 0;
  [[nodiscard]] int ranks() const noexcept { return nodes * ranks_per_node; }
};
/// Rates where none are given: NVLink of an H100, and InfiniBand.
constexpr double default_local_rate = 450e9;
constexpr double default_round_seconds = 5e-6;

/// A set of ranks that runs one collective, while `at_once` such sets of each node do the same.
struct RankSet {
  int nodes = 1;
  int ranks_per_node = 1;
  int at_once = 1;
};
/// All ranks.
[[nodiscard]] RankSet all_ranks(const Cluster& cluster);
/// A shard group of `size` consecutive ranks, and the ranks at the same index in each group.
[[nodiscard]] RankSet group_ranks(const Cluster& cluster, int size);
[[nodiscard]] RankSet replica_ranks(const Cluster& cluster, int size);

/// Seconds of a reduce-scatter or an all-gather of `bytes`; an all-reduce takes twice as long. As
/// for comm/levels: recursive halving between nodes, in pieces, so the slower of network and
/// node memory counts.
[[nodiscard]] double scatter_seconds(const Cluster& cluster, const RankSet& set, double bytes);
/// The computation that this takes on each rank.
[[nodiscard]] double host_seconds(const Cluster& cluster, const RankSet& set, double bytes);

/// A predicted step of the slowest rank.
struct PredictedStep {
  double compute = 0;  ///< seconds without communication
  double total = 0;
  [[nodiscard]] double exposed() const noexcept { return total - compute; }
  [[nodiscard]] double efficiency() const noexcept { return compute / total; }
};

/// Follows computation and collectives through a step: collectives between nodes run one after
/// another, each from when it starts, and so do those within nodes. Does not count stragglers,
/// loading and the optimizer. Pure.
[[nodiscard]] PredictedStep predict_step(const StepPlan& plan, const Cluster& cluster);
/// The same for the step of this configuration; see plan_step. `images_per_second`: of one rank
/// alone, with batch_size. Pure.
[[nodiscard]] PredictedStep predict_step(const Config& config, const Graph& graph,
                                         const Cluster& cluster, double images_per_second);

}  // namespace lockstep
