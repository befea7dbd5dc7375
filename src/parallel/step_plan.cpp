#include "lockstep/parallel/step_plan.hpp"

#include "lockstep/graph/summary.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <algorithm>

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

/// A synchronised batch norm, whose sums are over all ranks.
struct SynchronisedNorm {
  double share = 0;  ///< of backward, before it
  double channels = 0;
};
/// In the order of backward.
std::vector<SynchronisedNorm> synchronised_norms(const Config& config, const Graph& graph) {
  std::vector<SynchronisedNorm> norms;
  if (config.batch_norm != BatchNormScope::sync) return norms;
  const ModelSummary summary = summarize_model(graph);
  double done = 0;
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    done += static_cast<double>(summary.rows[i].multiply_adds);
    if (node.statistics.empty() || graph.has_fixed_statistics(node)) continue;
    norms.push_back({.share = done / static_cast<double>(summary.multiply_adds),
                     .channels = static_cast<double>(node.output[0])});
  }
  return norms;
}

/// Seconds of the parts of a micro-step.
struct MicroStep {
  double forward = 0;
  double backward = 0;
};

/// Appends actions.
class Planner final {
 public:
  Planner(int shard_group, const MicroStep& micro, std::vector<SynchronisedNorm> norms)
      : micro_(micro), norms_(std::move(norms)) {
    plan_.shard_group = shard_group;
  }

  /// Forward up to a share of it, with the sums of norms on the way.
  void forward_until(double share) {
    for (; forward_norms_ < norms_.size(); ++forward_norms_) {
      const SynchronisedNorm& norm = norms_[norms_.size() - 1 - forward_norms_];
      if (1 - norm.share > share) break;
      compute_until(forward_, 1 - norm.share, micro_.forward);
      sum(8 * (2 * norm.channels + 1));  // in fp64
    }
    compute_until(forward_, share, micro_.forward);
  }
  void backward_until(double share) {
    for (; backward_norms_ < norms_.size(); ++backward_norms_) {
      const SynchronisedNorm& norm = norms_[backward_norms_];
      if (norm.share > share) break;
      compute_until(backward_, norm.share, micro_.backward);
      sum(4 * 2 * norm.channels);
    }
    compute_until(backward_, share, micro_.backward);
  }
  void end_micro_step() {
    forward_ = 0;
    backward_ = 0;
    forward_norms_ = 0;
    backward_norms_ = 0;
  }
  int start(StepCollective what, StepRanks ranks, double bytes, int after = -1) {
    plan_.actions.push_back({.kind = StepAction::Kind::start,
                             .collective = plan_.collectives,
                             .what = what,
                             .ranks = ranks,
                             .bytes = bytes,
                             .after = after});
    return plan_.collectives++;
  }
  void wait(int collective) {
    plan_.actions.push_back({.kind = StepAction::Kind::wait, .collective = collective});
  }
  void wait_for_all() {
    for (int i = 0; i < plan_.collectives; ++i) wait(i);
  }
  [[nodiscard]] StepPlan take() { return std::move(plan_); }

 private:
  void compute_until(double& done, double share, double seconds) {
    if (share <= done) return;
    plan_.actions.push_back(
        {.kind = StepAction::Kind::compute, .seconds = (share - done) * seconds});
    done = share;
  }
  void sum(double bytes) { wait(start(StepCollective::all_reduce, StepRanks::all, bytes)); }

  StepPlan plan_;
  MicroStep micro_;
  std::vector<SynchronisedNorm> norms_;
  double forward_ = 0;              ///< share of the current micro-step that is planned
  double backward_ = 0;             ///< the same
  std::size_t forward_norms_ = 0;   ///< in the order of forward
  std::size_t backward_norms_ = 0;  ///< in the order of backward
};

StepPlan replicated_step(const Config& config, const Graph& graph, int ranks,
                         const MicroStep& micro) {
  Planner planner(ranks, micro, synchronised_norms(config, graph));
  for (std::int64_t i = 0; i + 1 < config.accumulate; ++i) {
    planner.forward_until(1);
    planner.backward_until(1);
    planner.end_micro_step();
  }
  planner.forward_until(1);
  const ArenaLayout layout = layout_of(config, graph, ranks);
  const std::vector<double> shares = backward_shares(graph);
  for (const Bucket& bucket : plan_buckets(layout, 0, bucket_bytes(config))) {
    planner.backward_until(share_at(layout, shares, bucket.end));
    planner.start(StepCollective::all_reduce, StepRanks::all,
                  static_cast<double>(bucket.size()) * bytes_of(reduce_dtype(config)));
  }
  planner.backward_until(1);
  planner.wait_for_all();
  return planner.take();
}

/// The step with --shard.
class ShardedStep final {
 public:
  ShardedStep(const Config& config, const Graph& graph, int ranks, const MicroStep& micro)
      : config_(config),
        planner_(group_size(config, ranks), micro, synchronised_norms(config, graph)) {
    const int size = group_size(config, ranks);
    if (ranks > size) share_of_rank_ = 1.0 / size;
    gathers_always_ = config.shard == ShardMode::full || config.shard == ShardMode::hybrid;
    const ArenaLayout layout = layout_of(config, graph, size);
    const std::vector<double> shares = backward_shares(graph);
    const double gathered = parameter_type(config) == Precision::fp32 ? 4 : 2;
    double done = 0;
    for (const ArenaUnit& unit : layout.units) {
      const double share = std::max(done, share_at(layout, shares, unit.end));
      const auto values = static_cast<double>(unit.size());
      units_.push_back({.begin = done,
                        .end = share,
                        .reduced_bytes = values * bytes_of(reduce_dtype(config)),
                        .gathered_bytes = values * (unit.in_fp32 ? 4 : gathered)});
      done = share;
    }
  }

  [[nodiscard]] StepPlan plan() {
    for (std::int64_t i = 0; i < config_.accumulate; ++i) {
      forward(i == 0);
      backward(i + 1 == config_.accumulate);
      planner_.end_micro_step();
    }
    planner_.wait_for_all();
    return planner_.take();
  }

 private:
  struct Unit {
    double begin = 0;  ///< share of backward before it
    double end = 0;    ///< with it
    double reduced_bytes = 0;
    double gathered_bytes = 0;
    int gather = -1;
  };

  [[nodiscard]] static int group_size(const Config& config, int ranks) {
    return config.shard == ShardMode::hybrid ? static_cast<int>(config.shard_group) : ranks;
  }
  void gather(Unit& unit) {
    unit.gather = planner_.start(StepCollective::all_gather, StepRanks::group, unit.gathered_bytes);
  }

  /// Either each unit is gathered while the one before it computes, or all from the start of the
  /// step on.
  void forward(bool first) {
    const std::size_t last = units_.size() - 1;
    if (gathers_always_) {
      gather(units_[last]);
    } else if (first) {
      for (std::size_t i = units_.size(); i-- > 0;) gather(units_[i]);
    }
    for (std::size_t i = units_.size(); i-- > 0;) {
      if (gathers_always_ || first) planner_.wait(units_[i].gather);
      if (gathers_always_ && i > 0) gather(units_[i - 1]);
      planner_.forward_until(1 - units_[i].begin);
    }
  }

  /// Forward used the first unit last, and it is still there.
  void backward(bool last) {
    const bool reduces = config_.shard != ShardMode::optimizer || last;
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (gathers_always_ && i > 0) planner_.wait(units_[i].gather);
      if (gathers_always_ && i + 1 < units_.size()) gather(units_[i + 1]);
      planner_.backward_until(units_[i].end);
      if (!reduces) continue;
      const int reduction =
          planner_.start(StepCollective::reduce_scatter, StepRanks::group, units_[i].reduced_bytes);
      if (share_of_rank_ == 0 || !last) continue;
      planner_.start(StepCollective::all_reduce, StepRanks::replicas,
                     share_of_rank_ * units_[i].reduced_bytes, reduction);
    }
  }

  const Config& config_;
  double share_of_rank_ = 0;  ///< of a unit, that is reduced between groups; 0: one group
  bool gathers_always_ = false;
  std::vector<Unit> units_;
  Planner planner_;
};

}  // namespace

const char* to_string(StepCollective what) noexcept {
  switch (what) {
    case StepCollective::reduce_scatter:
      return "reduce-scatter";
    case StepCollective::all_gather:
      return "all-gather";
    default:
      return "all-reduce";
  }
}

const char* to_string(StepRanks ranks) noexcept {
  switch (ranks) {
    case StepRanks::group:
      return "group";
    case StepRanks::replicas:
      return "replicas";
    default:
      return "all";
  }
}

double StepPlan::compute_seconds() const noexcept {
  double seconds = 0;
  for (const StepAction& action : actions) seconds += action.seconds;
  return seconds;
}

StepPlan plan_step(const Config& config, const Graph& graph, const StepPlanOptions& options) {
  const double seconds = static_cast<double>(config.batch_size) / options.images_per_second;
  const MicroStep micro{.forward = seconds / 3, .backward = 2 * seconds / 3};
  if (config.shard == ShardMode::none) return replicated_step(config, graph, options.ranks, micro);
  return ShardedStep(config, graph, options.ranks, micro).plan();
}

}  // namespace lockstep
