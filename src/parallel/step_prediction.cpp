#include "lockstep/parallel/step_prediction.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/graph/summary.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

ArenaLayout layout_of(const Config& config, const Graph& graph, int shard_group) {
  return lay_out_without_padding(graph, unit_options(config, graph, shard_group).rule);
}

/// By parameter: share of backward after which its gradient is final.
std::vector<double> backward_shares(const Graph& graph) {
  const ModelSummary summary = summarize_model(graph);
  std::vector<double> shares(graph.parameters().size());
  double done = 0;
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    done += static_cast<double>(summary.rows[i].multiply_adds);
    for (const ParameterId id : graph.nodes()[i].parameters) {
      shares[static_cast<std::size_t>(id)] = done / static_cast<double>(summary.multiply_adds);
    }
  }
  return shares;
}

/// Share of backward after which the arena's values up to `end` are final.
double share_at(const ArenaLayout& layout, const std::vector<double>& shares, std::size_t end) {
  double share = 0;
  for (const ArenaView& view : layout.views) {
    if (view.offset >= end) break;
    share = std::max(share, shares[static_cast<std::size_t>(view.parameter)]);
  }
  return share;
}

double bytes_of(ElementType type) {
  return type == ElementType::f32 ? 4 : 2;
}

/// Seconds of the parts of a micro-step.
struct MicroStep {
  double forward = 0;
  double backward = 0;
};

PredictedStep replicated_step(const Config& config, const Graph& graph, const Cluster& cluster,
                              const MicroStep& micro) {
  const ArenaLayout layout = layout_of(config, graph, cluster.ranks());
  const std::vector<double> shares = backward_shares(graph);
  const auto target = static_cast<std::size_t>(config.bucket_mb * 0x1p20);
  const auto micro_steps = static_cast<double>(config.accumulate);
  const double compute = micro_steps * (micro.forward + micro.backward);
  std::vector<Reduction> reductions;
  for (const Bucket& bucket : plan_buckets(layout, 0, target)) {
    const double bytes = static_cast<double>(bucket.size()) * bytes_of(reduce_dtype(config));
    reductions.push_back(
        {.ready = compute - (1 - share_at(layout, shares, bucket.end)) * micro.backward,
         .seconds = 2 * scatter_seconds(cluster, all_ranks(cluster), bytes)});
  }
  return {.compute = compute, .total = std::max(compute, end_of(reductions))};
}

/// Follows computation and the collectives of units through a step. Collectives of the shard group
/// run one after another, and so do those between groups.
class ShardedStep final {
 public:
  ShardedStep(const Config& config, const Graph& graph, const Cluster& cluster,
              const MicroStep& micro)
      : config_(config), cluster_(cluster), micro_(micro) {
    const bool hybrid = config.shard == ShardMode::hybrid;
    const int size = hybrid ? static_cast<int>(config.shard_group) : cluster.ranks();
    group_ = group_ranks(cluster, size);
    replicas_ = replica_ranks(cluster, size);
    across_ = cluster.ranks() > size ? 1.0 / size : 0;
    gathers_always_ = config.shard == ShardMode::full || hybrid;
    const ArenaLayout layout = layout_of(config, graph, size);
    const std::vector<double> shares = backward_shares(graph);
    const double gathered = parameter_type(config) == Precision::fp32 ? 4 : 2;
    double done = 0;
    for (const ArenaUnit& unit : layout.units) {
      const double share = std::max(done, share_at(layout, shares, unit.end));
      const auto values = static_cast<double>(unit.size());
      units_.push_back({.share = share - done,
                        .reduced_bytes = values * bytes_of(reduce_dtype(config)),
                        .gathered_bytes = values * (unit.in_fp32 ? 4 : gathered)});
      done = share;
    }
  }

  [[nodiscard]] PredictedStep run() {
    for (std::int64_t i = 0; i < config_.accumulate; ++i) {
      forward(i == 0);
      backward(i + 1 == config_.accumulate);
    }
    const auto micro_steps = static_cast<double>(config_.accumulate);
    return {.compute = micro_steps * (micro_.forward + micro_.backward),
            .total = std::max({now_, group_free_, across_free_})};
  }

 private:
  struct Unit {
    double share = 0;  ///< of backward's and of forward's time
    double reduced_bytes = 0;
    double gathered_bytes = 0;
  };

  /// The all-gather of a unit, started at `start`; returns its end.
  double gather(const Unit& unit, double start) {
    group_free_ =
        std::max(group_free_, start) + scatter_seconds(cluster_, group_, unit.gathered_bytes);
    return group_free_;
  }
  /// The next unit is gathered while one computes.
  void forward(bool first) {
    double start = now_;
    for (std::size_t i = units_.size(); i-- > 0;) {
      if (gathers_always_ || first) {
        const double end = gather(units_[i], gathers_always_ ? start : 0);
        now_ = std::max(now_, end);
      }
      start = now_;
      now_ += units_[i].share * micro_.forward;
    }
  }
  void backward(bool last) {
    const bool reduces = config_.shard != ShardMode::optimizer || last;
    double start = now_;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      // Forward used the first unit last, and it is still there.
      if (gathers_always_ && i > 0) now_ = std::max(now_, gather(units_[i], start));
      start = now_;
      now_ += units_[i].share * micro_.backward;
      if (!reduces) continue;
      group_free_ =
          std::max(group_free_, now_) + scatter_seconds(cluster_, group_, units_[i].reduced_bytes);
      if (across_ == 0 || !last) continue;
      across_free_ = std::max(across_free_, group_free_) +
                     2 * scatter_seconds(cluster_, replicas_, across_ * units_[i].reduced_bytes);
    }
  }

  const Config& config_;
  const Cluster& cluster_;
  MicroStep micro_;
  RankSet group_;
  RankSet replicas_;
  double across_ = 0;  ///< share of a unit that is reduced between groups
  bool gathers_always_ = false;
  std::vector<Unit> units_;
  double now_ = 0;  ///< of the computation
  double group_free_ = 0;
  double across_free_ = 0;
};

}  // namespace

RankSet all_ranks(const Cluster& cluster) {
  return {.nodes = cluster.nodes, .ranks_per_node = cluster.ranks_per_node, .at_once = 1};
}

RankSet group_ranks(const Cluster& cluster, int size) {
  const int local = std::min(size, cluster.ranks_per_node);
  return {
      .nodes = size / local, .ranks_per_node = local, .at_once = cluster.ranks_per_node / local};
}

RankSet replica_ranks(const Cluster& cluster, int size) {
  const int local = std::min(size, cluster.ranks_per_node);
  const int replicas = cluster.ranks() / size;
  const int replicas_per_node = cluster.ranks_per_node / local;
  return {
      .nodes = replicas / replicas_per_node, .ranks_per_node = replicas_per_node, .at_once = local};
}

double scatter_seconds(const Cluster& cluster, const RankSet& set, double bytes) {
  const auto share = [](int of) { return static_cast<double>(of - 1) / of; };
  const double network =
      set.nodes == 1 ? 0 : share(set.nodes) * bytes * set.at_once / cluster.node_rate;
  const double local =
      set.ranks_per_node == 1 ? 0 : share(set.ranks_per_node) * bytes / cluster.local_rate;
  const double rounds = std::ceil(std::log2(set.nodes)) + (set.ranks_per_node > 1 ? 1 : 0);
  return rounds * cluster.round_seconds + std::max(network, local);
}

double end_of(std::span<const Reduction> reductions) {
  double end = 0;
  for (const Reduction& reduction : reductions) {
    end = std::max(end, reduction.ready) + reduction.seconds;
  }
  return end;
}

PredictedStep predict_step(const Config& config, const Graph& graph, const Cluster& cluster,
                           double images_per_second) {
  const double seconds = static_cast<double>(config.batch_size) / images_per_second;
  const MicroStep micro{.forward = seconds / 3, .backward = 2 * seconds / 3};
  if (config.shard == ShardMode::none) return replicated_step(config, graph, cluster, micro);
  return ShardedStep(config, graph, cluster, micro).run();
}

}  // namespace lockstep
