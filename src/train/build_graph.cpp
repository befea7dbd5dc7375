#include "build_graph.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/train/parameter_options.hpp"

#include <fmt/format.h>

#include <string>

namespace lockstep {

Graph build_graph(const RunPlan& plan) {
  Graph graph = make_model(plan.config.model, plan.model);
  const std::string_view loss = loss_name(graph.nodes().back().op);
  if (plan.config.loss != loss) {
    fail(ExitStatus::usage,
         "--loss {} does not go with {} (the model ends in {}); end it with add_loss(), or give "
         "--loss {}",
         plan.config.loss, graph.name(), loss, loss);
  }
  const LossSettings wanted{.label_smoothing = plan.model.label_smoothing,
                            .target_threshold = plan.model.bce_target_threshold};
  const LossSettings found = loss_settings(graph.nodes().back().op);
  if (found != wanted) {
    fail(
        ExitStatus::usage,
        "--label-smoothing {} and --bce-target-threshold {} do not go with {} (its loss has {} and "
        "{}); end it with add_loss(), or give --label-smoothing {} and --bce-target-threshold {}",
        wanted.label_smoothing, wanted.target_threshold, graph.name(), found.label_smoothing,
        found.target_threshold, found.label_smoothing, found.target_threshold);
  }
  if (plan.config.stochastic_depth > 0 && drop_probabilities(graph).empty()) {
    fail(ExitStatus::usage,
         "--stochastic-depth {} does not go with {} (no norm of the model drops a block); set "
         "BatchNormOptions::drop, or drop the option",
         plan.config.stochastic_depth, graph.name());
  }
  return graph;
}

namespace {

/// `option`: the one that sets the size, and its value.
Graph build_resized(const Graph& training, const RunPlan& plan, const std::string& option) {
  Graph graph = build_graph(plan);
  const std::string difference = layer_difference(training, graph);
  if (difference.empty()) return graph;
  ModelOptions trained = plan.model;
  trained.image = image_shape(training.input_shape());
  const bool has_other_stem =
      stem_note(graph.name(), trained) != stem_note(graph.name(), plan.model);
  fail(ExitStatus::usage,
       "{} does not go with {} trained on images of {}x{} ({}: its {} on the size); drop it, or {}",
       option, graph.name(), trained.image.height, trained.image.width, difference,
       has_other_stem ? "stem depends" : "parameters depend",
       has_other_stem ? "give --stem 3x3 or --stem 7x7"
                      : "use a network that averages over the whole image");
}

}  // namespace

std::vector<SizedGraph> build_training_graphs(RunPlan plan) {
  std::vector<SizedGraph> graphs;
  graphs.push_back({.graph = build_graph(plan)});
  apply_parameter_options(graphs.front().graph, plan.config);  // the engine's graph
  for (const auto& [size, epoch] : plan.config.image_size_schedule) {
    plan.model.image.height = plan.model.image.width = size;
    graphs.push_back(
        {.epoch = epoch,
         .graph = build_resized(graphs.front().graph, plan,
                                fmt::format("--image-size-schedule {}@{}", size, epoch))});
  }
  return graphs;
}

std::optional<Graph> build_evaluation_graph(const Graph& training, RunPlan plan) {
  if (plan.evaluation_image == plan.model.image) return std::nullopt;
  plan.model.image = plan.evaluation_image;
  return build_resized(training, plan, fmt::format("--eval-size {}", plan.config.eval_size));
}

}  // namespace lockstep
