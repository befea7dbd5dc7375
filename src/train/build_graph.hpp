#pragma once

#include "lockstep/graph/graph.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/trainer.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// The network of --model. Error(usage) if it does not end in the loss of --loss, or drops no block
/// for --stochastic-depth.
[[nodiscard]] Graph build_graph(const RunPlan& plan);

/// The network for one size of training images.
struct SizedGraph {
  std::int64_t epoch = 0;  ///< the first epoch that has this size, from 0
  Graph graph;
};
/// One for --image-size, with the rates of --freeze and --lr-scale, then one for each change of
/// --image-size-schedule; all have the same parameters. Error(usage) if the parameters depend on
/// the size, or from apply_parameter_options().
[[nodiscard]] std::vector<SizedGraph> build_training_graphs(RunPlan plan);

/// The network for images of --eval-size, with the parameters of `training`; nullopt if that is the
/// size of training. Error(usage) if the parameters depend on the size.
[[nodiscard]] std::optional<Graph> build_evaluation_graph(const Graph& training, RunPlan plan);

}  // namespace lockstep
