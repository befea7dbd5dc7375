#pragma once

#include "../losses/loss_terms.hpp"
#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/engine/program.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/step/step_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The loss of a graph.
struct GraphLoss {
  ValueId logits = 0;
  std::int64_t classes = 0;
  LossTerms terms = {};
  bool measures_confidence = false;  ///< no metric of training needs it, and it takes exponentials
};

/// The graph to compile; `own` is the engine's.
[[nodiscard]] inline const Graph& graph_of(const ProgramOptions& options, const Graph& own) {
  return options.graph != nullptr ? *options.graph : own;
}
/// The graph's; for inference, cross entropy without smoothing instead of another loss than softmax
/// cross entropy, as timm.
[[nodiscard]] GraphLoss loss_of(const ProgramOptions& options, const Graph& own);
/// Returns the options; errors as Engine::compile(). `own` is the engine's graph.
[[nodiscard]] const ProgramOptions& checked_options(const ProgramOptions& options,
                                                    const ParameterArena& arena, const Graph& own);
/// How an engine computes a step.
struct StepRules {
  Fusions fusions = {};
  Recompute recompute = Recompute::none;
  bool awaits_units = false;  ///< forward awaits units that are held before their first use
};
/// The list of a program's ops.
[[nodiscard]] StepGraph make_steps(const Graph& graph, const ProgramOptions& options,
                                   const ParameterArena& arena, const StepRules& rules);

/// Ends of the units, or buckets, in which gradients are reduced, ascending.
[[nodiscard]] std::span<const std::size_t> unit_ends(const ParameterArena& arena,
                                                     const ProgramOptions& options);

/// Error(internal) if the program cannot compute a batch of this size, or cannot run backward.
void require_batch(const ProgramOptions& options, std::int64_t size);
void require_backward(const ProgramOptions& options);

/// Sums over a batch, always in the same order.
template <typename T>
[[nodiscard]] BatchMetrics sum_metrics(std::span<const T> losses,
                                       std::span<const Prediction> predictions) {
  BatchMetrics metrics{.samples = static_cast<std::int64_t>(losses.size())};
  for (std::size_t n = 0; n < losses.size(); ++n) {
    metrics.loss += losses[n];
    metrics.metrics += metrics_of(predictions[n]);
  }
  return metrics;
}

}  // namespace lockstep
