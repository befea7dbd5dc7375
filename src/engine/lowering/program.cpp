#include "program.hpp"

#include "lockstep/core/error.hpp"

#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {

namespace {

/// The alternative of LossTerms whose op is `Loss`.
template <typename Loss, typename... Terms>
LossTerms terms_of(const LossTargets& targets, const std::variant<Terms...>*) {
  static_assert((std::is_same_v<typename Terms::Op, Loss> || ...), "the engines compute no terms");
  LossTerms result;
  const auto try_terms = [&]<typename Each>(const Each*) {
    if constexpr (std::is_same_v<typename Each::Op, Loss>) result = Each{.targets = targets};
  };
  (try_terms(static_cast<const Terms*>(nullptr)), ...);
  return result;
}

/// Of a loss; cross entropy's without smoothing if the op is none.
LossTerms terms_of(const Op& op, std::int64_t classes) {
  return std::visit(
      [&]<typename Each>(const Each& each) -> LossTerms {
        if constexpr (LossOp<Each>) {
          const LossSettings settings = settings_of(each);
          return terms_of<Each>(
              loss_targets(classes, settings.label_smoothing, settings.target_threshold),
              static_cast<const LossTerms*>(nullptr));
        } else {
          return SoftmaxCrossEntropyTerms{.targets = loss_targets(classes, 0)};
        }
      },
      op);
}

}  // namespace

GraphLoss loss_of(const ProgramOptions& options, const Graph& own) {
  const Graph& graph = graph_of(options, own);
  const ValueId logits = graph.logits();
  const std::int64_t classes = graph.outputs();
  const Op& loss = graph.nodes().back().op;
  const bool substitutes = !options.training && !std::holds_alternative<SoftmaxCrossEntropy>(loss);
  return {.logits = logits,
          .classes = classes,
          .terms = terms_of(substitutes ? Op(SoftmaxCrossEntropy{}) : loss, classes),
          .measures_confidence = !options.training};
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
  StepGraph steps = options.training ? training_steps(graph, rules.fusions, rules.recompute)
                                     : fuse(forward_steps(graph), graph, rules.fusions);
  if (options.exchange == nullptr) return steps;
  StepUnits units = arena.step_units();
  if (!arena.layout().is_sharded()) {
    units.ends.assign(options.bucket_ends.begin(), options.bucket_ends.end());
  }
  units.awaits = rules.awaits_units && arena.layout().is_sharded();
  units.has_replicas = options.exchange->has_replicas();
  arena.unit_options().apply_to(units);
  return shard(std::move(steps), graph, units);
}

std::span<const std::size_t> unit_ends(const ParameterArena& arena, const ProgramOptions& options) {
  return arena.layout().is_sharded() ? std::span<const std::size_t>(arena.step_units().ends)
                                     : options.bucket_ends;
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
