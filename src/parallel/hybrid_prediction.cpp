#include "lockstep/parallel/hybrid_prediction.hpp"

#include "lockstep/parallel/step_prediction.hpp"

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr double slowest_rate = 1e6;
constexpr double fastest_rate = 1e12;
constexpr int group_of_single_ranks = 8;

}  // namespace

std::optional<HybridPrediction> predict_hybrid(Config config, const Graph& graph,
                                               const MeasuredSteps& measured) {
  Cluster cluster{.nodes = measured.nodes,
                  .ranks_per_node = measured.ranks_per_node,
                  .local_rate = std::numeric_limits<double>::infinity(),
                  .round_seconds = default_round_seconds};
  const int group = cluster.ranks_per_node > 1 ? cluster.ranks_per_node : group_of_single_ranks;
  if (cluster.ranks() % group != 0 || cluster.ranks() == group) return std::nullopt;
  const StepPlanOptions options{.ranks = cluster.ranks(),
                                .images_per_second = measured.images_per_second};
  const StepPlan plan = plan_step(config, graph, options);
  double low = slowest_rate;
  double high = fastest_rate;
  while (high > 1.001 * low) {
    cluster.node_rate = std::sqrt(low * high);
    (predict_step(plan, cluster).total > measured.seconds ? low : high) = cluster.node_rate;
  }
  config.shard = ShardMode::hybrid;
  config.shard_group = group;
  return HybridPrediction{
      .group = group, .seconds = predict_step(plan_step(config, graph, options), cluster).total};
}

}  // namespace lockstep
