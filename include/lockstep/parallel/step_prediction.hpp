#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Ranks and what connects them. Rates are in bytes per second, of each direction.
struct Cluster {
  int nodes = 1;
  int ranks_per_node = 1;
  double node_rate = 0;      ///< of all links of a node together
  double local_rate = 0;     ///< of a rank to the ranks of its node
  double round_seconds = 0;  ///< latency of one round of messages
  [[nodiscard]] int ranks() const noexcept { return nodes * ranks_per_node; }
};

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

/// One bucket, or one unit of --shard.
struct Reduction {
  double ready = 0;    ///< seconds after the start of the step
  double seconds = 0;  ///< of its collective
};
/// End of the last of the reductions, which run one after another.
[[nodiscard]] double end_of(std::span<const Reduction> reductions);

/// A predicted step of the slowest rank.
struct PredictedStep {
  double compute = 0;  ///< seconds without communication
  double total = 0;
  [[nodiscard]] double exposed() const noexcept { return total - compute; }
  [[nodiscard]] double efficiency() const noexcept { return compute / total; }
};

/// Predicts a step from bucket_plan, the units and the traffic of the run's configuration.
/// Forward takes a third of a micro-step and backward two; within them, layers take time in
/// proportion to their multiply-adds. Does not count stragglers, loading and the optimizer. Reads
/// from config: shard, shard_group, shard_unit, bucket_mb, accumulate, precision and the
/// communication data types. `images_per_second`: of one rank alone, with batch_size. Pure.
[[nodiscard]] PredictedStep predict_step(const Config& config, const Graph& graph,
                                         const Cluster& cluster, double images_per_second);

}  // namespace lockstep
