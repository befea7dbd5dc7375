#include "lockstep/parallel/step_plan.hpp"

#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/parallel/tail_bucket.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

namespace lockstep {
namespace {

bool gathers_in_passes(const Config& config) {
  return config.shard == ShardMode::full || config.shard == ShardMode::hybrid;
}

/// Walks the ops of a step's micro-steps and appends actions.
class Planner final {
 public:
  Planner(const Config& config, const Graph& graph, const StepPlanOptions& options)
      : config_(config),
        graph_(graph),
        own_(parallel_steps(config, graph, options.ranks)),
        gathers_(own_.reduced_bytes.size()),
        reductions_(own_.reduced_bytes.size()) {
    plan_.shard_group = own_.shard_group;
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
    const std::span<const StepOp> ops = own_.steps.ops;
    const auto end = ops.subspan(own_.micro_ops);
    // The gathers that end a step go on during the next one's forward.
    for (const StepOp& op : end) {
      if (op.kind == StepOp::Kind::start_gather) gather(op.unit);
    }
    for (std::int64_t i = 0; i < config_.accumulate; ++i) {
      const bool last = i + 1 == config_.accumulate;
      for (const StepOp& op : ops.first(own_.micro_ops)) {
        if (last || !op.in_last_micro_step) add(op, i == 0);
      }
    }
    for (const StepOp& op : end) {
      if (op.kind != StepOp::Kind::start_gather) add(op, false);
    }
    flush();
    return std::move(plan_);
  }

 private:
  /// Multiply-adds. Both parts of a layer's backward take the time of its forward.
  [[nodiscard]] double work_of(const StepOp& op) const {
    const bool computes = op.kind == StepOp::Kind::forward || op.kind == StepOp::Kind::gradient;
    if (!computes) return 0;
    return static_cast<double>(graph_.nodes()[static_cast<std::size_t>(op.node)].multiply_adds);
  }

  void add(const StepOp& op, bool first) {
    using Kind = StepOp::Kind;
    switch (op.kind) {
      case Kind::forward:
        compute(forward_seconds_ * work_of(op));
        return sum_norm(op, sizeof(double), 1);
      case Kind::gradient:
        compute(backward_seconds_ * work_of(op));
        return sum_norm(op, sizeof(float), 0);
      case Kind::start_gather:
        return gather(op.unit);
      case Kind::await_gather:
        if (first || gathers_in_passes(config_)) wait(gathers_[op.unit]);
        return;
      case Kind::start_reduction:
        return reduce(op.unit, own_.reduced_bytes[op.unit]);
      case Kind::start_replicas:
        return reduce_over_replicas(op.unit);
      case Kind::await_reduction:
      case Kind::await_replicas:
        return wait(reductions_[op.unit]);
      case Kind::start_tail:
        return start_tail(op.unit);
      case Kind::await_tail:
        return wait(tail_);
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

  void reduce(std::size_t unit, std::size_t bytes) {
    const bool sharded = config_.shard != ShardMode::none;
    reductions_[unit] =
        start(sharded ? StepCollective::reduce_scatter : StepCollective::all_reduce,
              sharded ? StepRanks::group : StepRanks::all, static_cast<double>(bytes));
  }
  void reduce_over_replicas(std::size_t unit) {
    const double shard = static_cast<double>(own_.reduced_bytes[unit]) / own_.shard_group;
    reductions_[unit] = start(StepCollective::all_reduce, StepRanks::replicas, shard);
  }
  void start_tail(std::size_t unit) {
    if (own_.tail_joins_last) {
      reduce(unit, own_.reduced_bytes[unit] + own_.tail_bytes);
      tail_ = reductions_[unit];
    } else {
      tail_ =
          start(StepCollective::all_reduce, StepRanks::all, static_cast<double>(own_.tail_bytes));
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
  int start(StepCollective what, StepRanks ranks, double bytes) {
    append({.kind = StepAction::Kind::start,
            .collective = plan_.collectives,
            .what = what,
            .ranks = ranks,
            .bytes = bytes});
    return plan_.collectives++;
  }
  void wait(int collective) { append({.kind = StepAction::Kind::wait, .collective = collective}); }

  const Config& config_;
  const Graph& graph_;
  ParallelSteps own_;
  std::vector<int> gathers_;     ///< by unit: its newest gather
  std::vector<int> reductions_;  ///< by unit: its newest reduction
  int tail_ = 0;                 ///< reduction that has it
  double forward_seconds_ = 0;   ///< per multiply-add
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

ParallelSteps parallel_steps(const Config& config, const Graph& graph, int ranks) {
  const bool sharded = config.shard != ShardMode::none;
  ParallelSteps result;
  result.shard_group =
      config.shard == ShardMode::hybrid ? static_cast<int>(config.shard_group) : ranks;
  result.tail_bytes = TailBucket(graph).size() * sizeof(float);
  const UnitOptions options = unit_options(config, graph, result.shard_group);
  const ArenaLayout layout = lay_out_without_padding(graph, options.rule);
  const std::size_t reduced_value = reduce_dtype(config) == ElementType::f32 ? 4 : 2;
  StepUnits units = step_units(layout, graph);
  for (const ArenaUnit& unit : layout.units) {
    result.gathered_bytes.push_back(unit.size() * options.value_bytes(unit));
    result.reduced_bytes.push_back(unit.size() * reduced_value);
  }
  if (!sharded) {
    for (const Bucket& bucket : plan_buckets(layout, 0, bucket_bytes(config))) {
      units.ends.push_back(bucket.end);
      result.reduced_bytes.push_back(bucket.size() * reduced_value);
    }
    result.tail_joins_last = tail_place(reduce_dtype(config)) == TailPlace::last_bucket;
  }
  const StepEnd end{.units = units.ends.size(),
                    .tail_joins_last = result.tail_joins_last,
                    .awaits_reductions = options.holds_gradients,
                    .has_replicas = sharded && ranks > result.shard_group,
                    .decides = config.clip_grad_norm > 0 || config.accumulate > 1 ||
                               config.precision == Precision::fp16 ||
                               traits_of(config.optimizer).has_trust_ratio,
                    .gathers = sharded && options.holds_parameters};
  if (end.tail_joins_last) units.ends.pop_back();
  units.gathers = gathers_in_passes(config);
  units.awaits = sharded;
  units.reduces = true;
  units.has_replicas = end.has_replicas;
  if (!options.holds_gradients) units.reductions_in_flight = UnitExchange::reductions_in_flight;

  const Fusions fusions{.relu_takes_sums = true};
  StepGraph& steps = result.steps;
  steps = differentiate(fuse(forward_steps(graph), graph, fusions), graph, fusions);
  if (config.recompute != Recompute::none) steps = recompute(std::move(steps), graph);
  steps = shard(std::move(steps), graph, units);
  result.micro_ops = steps.ops.size();
  std::ranges::move(end_of_step(end), std::back_inserter(steps.ops));
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
