#include "program.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

GraphLoss training_loss(const Graph& graph) {
  const Op& op = graph.nodes().back().op;
  GraphLoss result{};
  if (const auto* loss = std::get_if<BinaryCrossEntropy>(&op)) {
    result = {.logits = loss->input,
              .kind = LossKind::bce,
              .label_smoothing = loss->options.label_smoothing,
              .target_threshold = loss->options.target_threshold};
  } else {
    const auto& softmax = std::get<SoftmaxCrossEntropy>(op);
    result = {.logits = softmax.input, .label_smoothing = softmax.options.label_smoothing};
  }
  result.classes = graph.nodes()[static_cast<std::size_t>(result.logits)].output[0];
  return result;
}

GraphLoss loss_of(const ProgramOptions& options, const Graph& own) {
  const GraphLoss loss = training_loss(graph_of(options, own));
  if (options.training || loss.kind == LossKind::cross_entropy) return loss;
  return {.logits = loss.logits, .classes = loss.classes};
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
