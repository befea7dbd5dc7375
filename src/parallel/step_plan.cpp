#include "lockstep/parallel/step_plan.hpp"

#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <cstddef>
#include <utility>

namespace lockstep {
namespace {

int group_size(const Config& config, int ranks) {
  return config.shard == ShardMode::hybrid ? static_cast<int>(config.shard_group) : ranks;
}

bool gathers_in_passes(const Config& config) {
  return config.shard == ShardMode::full || config.shard == ShardMode::hybrid;
}

/// Walks the ops of a step's micro-steps and appends actions.
class Planner final {
 public:
  Planner(const Config& config, const Graph& graph, const StepPlanOptions& options)
      : config_(config),
        graph_(graph),
        group_(group_size(config, options.ranks)),
        own_(parallel_steps(config, graph, group_)),
        has_replicas_(options.ranks > group_),
        gathers_(own_.reduced_bytes.size(), -1) {
    plan_.shard_group = group_;
    const double seconds = static_cast<double>(config.batch_size) / options.images_per_second;
    double forward = 0;
    double backward = 0;
    for (const StepOp& op : own_.steps.ops) {
      (op.kind == StepOp::Kind::forward ? forward : backward) += work_of(op);
    }
    forward_seconds_ = seconds / 3 / forward;
    backward_seconds_ = 2 * seconds / 3 / backward;
  }

  [[nodiscard]] StepPlan plan() {
    if (config_.shard != ShardMode::none && !gathers_in_passes(config_)) {
      for (std::size_t unit = gathers_.size(); unit-- > 0;) gather(unit);
    }
    for (std::int64_t i = 0; i < config_.accumulate; ++i) {
      for (const StepOp& op : own_.steps.ops) add(op, i == 0, i + 1 == config_.accumulate);
    }
    flush();
    for (int i = 0; i < plan_.collectives; ++i) wait(i);
    return std::move(plan_);
  }

 private:
  /// Multiply-adds. Both parts of a layer's backward take the time of its forward.
  [[nodiscard]] double work_of(const StepOp& op) const {
    const bool computes = op.kind == StepOp::Kind::forward || op.kind == StepOp::Kind::gradient;
    if (!computes) return 0;
    return static_cast<double>(graph_.nodes()[static_cast<std::size_t>(op.node)].multiply_adds);
  }

  void add(const StepOp& op, bool first, bool last) {
    switch (op.kind) {
      case StepOp::Kind::forward:
        compute(forward_seconds_ * work_of(op));
        return sum_norm(op, sizeof(double), 1);
      case StepOp::Kind::gradient:
        compute(backward_seconds_ * work_of(op));
        return sum_norm(op, sizeof(float), 0);
      case StepOp::Kind::start_gather:
        return gather(op.unit);
      case StepOp::Kind::await_gather:
        if (first || gathers_in_passes(config_)) wait(gathers_[op.unit]);
        return;
      case StepOp::Kind::start_reduction:
        return reduce(op.unit, last);
      default:
        return;
    }
  }

  void sum_norm(const StepOp& op, std::size_t value_bytes, double more) {
    if (!sums_over_ranks(op, config_, graph_)) return;
    const Node& node = graph_.nodes()[static_cast<std::size_t>(op.node)];
    const double values = 2 * static_cast<double>(node.output[0]) + more;
    wait(start(StepCollective::all_reduce, StepRanks::all,
               static_cast<double>(value_bytes) * values));
  }

  void gather(std::size_t unit) {
    gathers_[unit] = start(StepCollective::all_gather, StepRanks::group,
                           static_cast<double>(own_.gathered_bytes[unit]));
  }

  void reduce(std::size_t unit, bool last) {
    const auto bytes = static_cast<double>(own_.reduced_bytes[unit]);
    if (config_.shard == ShardMode::none) {
      if (last) start(StepCollective::all_reduce, StepRanks::all, bytes);
      return;
    }
    if (config_.shard == ShardMode::optimizer && !last) return;
    const int reduction = start(StepCollective::reduce_scatter, StepRanks::group, bytes);
    if (has_replicas_ && last) {
      start(StepCollective::all_reduce, StepRanks::replicas, bytes / group_, reduction);
    }
  }

  // Computation is appended when something else is.
  void compute(double seconds) { computed_ += seconds; }
  void flush() {
    if (computed_ > 0) {
      plan_.actions.push_back({.kind = StepAction::Kind::compute, .seconds = computed_});
    }
    computed_ = 0;
  }
  void append(const StepAction& action) {
    flush();
    plan_.actions.push_back(action);
  }
  int start(StepCollective what, StepRanks ranks, double bytes, int after = -1) {
    append({.kind = StepAction::Kind::start,
            .collective = plan_.collectives,
            .what = what,
            .ranks = ranks,
            .bytes = bytes,
            .after = after});
    return plan_.collectives++;
  }
  void wait(int collective) { append({.kind = StepAction::Kind::wait, .collective = collective}); }

  const Config& config_;
  const Graph& graph_;
  int group_;
  ParallelSteps own_;
  bool has_replicas_;           ///< units are also reduced between groups
  std::vector<int> gathers_;    ///< by unit: its newest gather
  double forward_seconds_ = 0;  ///< per multiply-add
  double backward_seconds_ = 0;
  double computed_ = 0;  ///< seconds since the last action
  StepPlan plan_;
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

ParallelSteps parallel_steps(const Config& config, const Graph& graph, int shard_group) {
  const ArenaLayout layout =
      lay_out_without_padding(graph, unit_options(config, graph, shard_group).rule);
  const Fusions fusions{.relu_takes_sums = true};
  ParallelSteps result{
      .steps = differentiate(fuse(forward_steps(graph), graph, fusions), graph, fusions),
      .gathered_bytes = {},
      .reduced_bytes = {}};
  if (config.recompute != Recompute::none) result.steps = recompute(std::move(result.steps), graph);
  StepUnits units = step_units(layout, graph);
  const std::size_t reduced_value = reduce_dtype(config) == ElementType::f32 ? 4 : 2;
  for (const ArenaUnit& unit : layout.units) {
    const bool narrow = parameter_type(config) != Precision::fp32 && !unit.in_fp32;
    result.gathered_bytes.push_back(unit.size() * (narrow ? 2 : 4));
    result.reduced_bytes.push_back(unit.size() * reduced_value);
  }
  const bool sharded = config.shard != ShardMode::none;
  if (!sharded) {
    for (const Bucket& bucket : plan_buckets(layout, 0, bucket_bytes(config))) {
      units.ends.push_back(bucket.end);
      units.stays.push_back(false);
      result.reduced_bytes.push_back(bucket.size() * reduced_value);
    }
  }
  units.gathers = gathers_in_passes(config);
  units.awaits = sharded;
  units.reduces = true;
  if (config.shard == ShardMode::none || config.shard == ShardMode::optimizer) {
    units.reductions_in_flight = units.ends.size();
  }
  result.steps = shard(std::move(result.steps), graph, units);
  return result;
}

bool sums_over_ranks(const StepOp& op, const Config& config, const Graph& graph) {
  const Node& node = graph.nodes()[static_cast<std::size_t>(op.node)];
  const bool has_sums = op.kind == StepOp::Kind::forward || op.kind == StepOp::Kind::gradient;
  return has_sums && config.batch_norm == BatchNormScope::sync && !node.statistics.empty() &&
         !graph.has_fixed_statistics(node);
}

StepPlan plan_step(const Config& config, const Graph& graph, const StepPlanOptions& options) {
  return Planner(config, graph, options).plan();
}

}  // namespace lockstep
