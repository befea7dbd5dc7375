#include "lockstep/parallel/step_plan.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/parallel/tail_bucket.hpp"
#include "lockstep/step/step_text.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

namespace lockstep {
namespace {

/// Walks the ops of a step's micro-steps and appends actions.
class Planner final {
 public:
  Planner(const Config& config, const Graph& graph, const StepPlanOptions& options)
      : config_(config),
        graph_(graph),
        steps_(parallel_steps(config, graph, options.ranks)),
        gathers_(steps_.reduced_bytes.size()),
        reductions_(steps_.reduced_bytes.size()) {
    plan_.shard_group = steps_.shard_group;
    const double seconds = static_cast<double>(config.batch_size) / options.images_per_second;
    double forward = 0;
    double backward = 0;
    for (const StepOp& op : steps_.steps.ops) {
      (op.kind == StepOp::Kind::forward ? forward : backward) += work_of(op);
    }
    forward_seconds_ = seconds / 3 / forward;
    backward_seconds_ = 2 * seconds / 3 / backward;
  }

  [[nodiscard]] StepPlan plan() {
    const std::span<const StepOp> ops = steps_.steps.ops;
    const auto end = ops.subspan(steps_.micro_ops);
    // The gathers that end a step go on during the next one's forward.
    for (const StepOp& op : end) {
      if (op.kind == StepOp::Kind::start_gather) add(op);
    }
    for (std::int64_t i = 0; i < config_.accumulate; ++i) {
      const bool last = i + 1 == config_.accumulate;
      for (const StepOp& op : ops.first(steps_.micro_ops)) {
        if (last || !op.in_last_micro_step) add(op);
      }
    }
    for (const StepOp& op : end) {
      if (op.kind != StepOp::Kind::start_gather) add(op);
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

  void add(const StepOp& op) {
    using Kind = StepOp::Kind;
    switch (op.kind) {
      case Kind::forward:
        compute(forward_seconds_ * work_of(op));
        return sum_norm(op, sizeof(double), 1);
      case Kind::gradient:
        compute(backward_seconds_ * work_of(op));
        return sum_norm(op, sizeof(float), 0);
      case Kind::start_gather:
        gathers_[op.unit] = start(collective_of(op, steps_));
        return;
      case Kind::await_gather:
        return wait(gathers_[op.unit]);
      case Kind::start_reduction:
      case Kind::start_replica_reduction:
        reductions_[op.unit] = start(collective_of(op, steps_));
        return;
      case Kind::await_reduction:
      case Kind::await_replica_reduction:
        return wait(reductions_[op.unit]);
      case Kind::start_tail:
        tail_ = start(collective_of(op, steps_));
        return;
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
    wait(start(
        {.kind = StepAction::Kind::start, .bytes = static_cast<double>(value_bytes) * values}));
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
  int start(StepAction action) {
    action.collective = plan_.collectives++;
    append(action);
    return action.collective;
  }
  void wait(int collective) { append({.kind = StepAction::Kind::wait, .collective = collective}); }

  const Config& config_;
  const Graph& graph_;
  ParallelSteps steps_;
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
  ParallelSteps result;
  const bool sharded = config.shard != ShardMode::none;
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
                    .gathers = sharded && options.holds_parameters,
                    .clips = config.clip_grad_norm > 0,
                    .accumulates = config.accumulate > 1,
                    .skips_overflow = config.precision == Precision::fp16,
                    .optimizer_needs_all = traits_of(config.optimizer).has_trust_ratio};
  if (end.tail_joins_last) units.ends.pop_back();
  units.awaits = sharded;
  units.has_replicas = end.has_replicas;
  options.apply_to(units);

  StepGraph& steps = result.steps;
  steps = training_steps(graph, cpu_fusions, of_cpus(config.recompute));
  steps = shard(std::move(steps), graph, units);
  result.micro_ops = steps.ops.size();
  std::ranges::move(end_of_step(end), std::back_inserter(steps.ops));
  return result;
}

StepAction collective_of(const StepOp& op, const ParallelSteps& steps) {
  using Kind = StepOp::Kind;
  const auto action = [](StepCollective what, StepRanks ranks, double bytes) {
    return StepAction{
        .kind = StepAction::Kind::start, .what = what, .ranks = ranks, .bytes = bytes};
  };
  const auto reduced = [&] { return static_cast<double>(steps.reduced_bytes.at(op.unit)); };
  switch (op.kind) {
    case Kind::start_gather:
    case Kind::await_gather:
      return action(StepCollective::all_gather, StepRanks::group,
                    static_cast<double>(steps.gathered_bytes[op.unit]));
    case Kind::start_replica_reduction:
    case Kind::await_replica_reduction:
      return action(StepCollective::all_reduce, StepRanks::replicas, reduced() / steps.shard_group);
    case Kind::start_tail:
    case Kind::await_tail:
      return action(
          StepCollective::all_reduce, StepRanks::all,
          static_cast<double>(steps.tail_bytes) + (steps.tail_joins_last ? reduced() : 0));
    case Kind::start_reduction:
    case Kind::await_reduction:
      return steps.is_sharded()
                 ? action(StepCollective::reduce_scatter, StepRanks::group, reduced())
                 : action(StepCollective::all_reduce, StepRanks::all, reduced());
    default:
      fail(ExitStatus::internal, "'{}' is no collective", kind_name(op));
  }
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
