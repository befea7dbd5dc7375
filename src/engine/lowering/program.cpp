#include "program.hpp"

#include "lockstep/core/error.hpp"

#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

GraphLoss training_loss(const Graph& graph) {
  const ValueId logits = graph.logits();
  const auto rule_of = [](const auto& op) -> LossRule {
    if constexpr (LossOp<std::decay_t<decltype(op)>>) return op.rule();
    return {};
  };
  return {.logits = logits,
          .classes = graph.nodes()[static_cast<std::size_t>(logits)].output[0],
          .rule = std::visit(rule_of, graph.nodes().back().op)};
}

GraphLoss loss_of(const ProgramOptions& options, const Graph& own) {
  GraphLoss loss = training_loss(graph_of(options, own));
  if (!options.training && loss.rule.kind != LossKind::cross_entropy) loss.rule = {};
  return loss;
}

const ProgramOptions& checked_options(const ProgramOptions& options, const ParameterArena& arena,
                                      const Graph& own) {
  if (options.batch_size < 1) {
    fail(ExitStatus::usage, "a batch of {} samples cannot be compiled (at least 1 is needed)",
         options.batch_size);
  }
  if (options.exchange == nullptr && arena.layout().is_sharded()) {
    fail(ExitStatus::internal,
         "a program without an exchange cannot be compiled (its parameters are sharded in {} "
         "units); pass the exchange of the sharded state",
         arena.layout().units.size());
  }
  if (options.graph == nullptr) return options;
  const std::string difference = layer_difference(own, *options.graph);
  if (difference.empty()) return options;
  fail(ExitStatus::internal, "{} cannot be compiled with the parameters of {} ({})",
       options.graph->name(), own.name(), difference);
}

StepGraph make_steps(const Graph& graph, const ProgramOptions& options, const ParameterArena& arena,
                     const StepRules& rules) {
  StepGraph steps = fuse(forward_steps(graph), graph, rules.fusions);
  if (options.training) steps = differentiate(std::move(steps), graph, rules.fusions);
  if (options.training && rules.recomputes) steps = recompute(std::move(steps), graph);
  if (options.exchange == nullptr) return steps;
  const bool sharded = arena.layout().is_sharded();
  StepUnits units = arena.step_units();
  if (!sharded) units.ends.assign(options.bucket_ends.begin(), options.bucket_ends.end());
  units.gathers = !arena.holds_parameters();
  units.awaits = rules.awaits_units && sharded;
  units.reduces = options.training;
  units.has_replicas = options.exchange->has_replicas();
  if (!arena.holds_gradients()) units.reductions_in_flight = UnitExchange::reductions_in_flight;
  return shard(std::move(steps), graph, units);
}

void require_batch(const ProgramOptions& options, std::int64_t size) {
  const bool fits =
      options.training ? size == options.batch_size : size >= 1 && size <= options.batch_size;
  if (fits) return;
  fail(ExitStatus::internal, "a batch of {} samples cannot run (the program is compiled for {})",
       size, options.batch_size);
}

void require_backward(const ProgramOptions& options) {
  if (options.training) return;
  fail(ExitStatus::internal, "backward cannot run (the program is compiled for inference)");
}

}  // namespace lockstep
