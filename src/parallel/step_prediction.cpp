#include "lockstep/parallel/step_prediction.hpp"

#include "lockstep/comm/block_schedule.hpp"
#include "lockstep/config/config.hpp"

#include <algorithm>
#include <vector>

namespace lockstep {
namespace {

double share_of_others(int count) {
  return static_cast<double>(count - 1) / count;
}

RankSet set_of(StepRanks ranks, const Cluster& cluster, int group) {
  switch (ranks) {
    case StepRanks::group:
      return group_ranks(cluster, group);
    case StepRanks::replicas:
      return replica_ranks(cluster, group);
    default:
      return all_ranks(cluster);
  }
}

}  // namespace

RankSet all_ranks(const Cluster& cluster) {
  return {.nodes = cluster.nodes, .ranks_per_node = cluster.ranks_per_node, .at_once = 1};
}

RankSet group_ranks(const Cluster& cluster, int size) {
  const int local = std::min(size, cluster.ranks_per_node);
  return {
      .nodes = size / local, .ranks_per_node = local, .at_once = cluster.ranks_per_node / local};
}

RankSet replica_ranks(const Cluster& cluster, int size) {
  const int local = std::min(size, cluster.ranks_per_node);
  const int replicas = cluster.ranks() / size;
  const int replicas_per_node = cluster.ranks_per_node / local;
  return {
      .nodes = replicas / replicas_per_node, .ranks_per_node = replicas_per_node, .at_once = local};
}

double host_seconds(const Cluster& cluster, const RankSet& set, double bytes) {
  if (cluster.host_seconds_per_byte == 0) return 0;
  // Each rank sends a slice of its node's bytes.
  const double slice = share_of_others(set.nodes) * bytes / set.ranks_per_node;
  return cluster.host_seconds_per_byte * slice +
         share_of_others(set.ranks_per_node) * bytes / cluster.local_rate;
}

double scatter_seconds(const Cluster& cluster, const RankSet& set, double bytes) {
  const double network =
      set.nodes == 1 ? 0 : share_of_others(set.nodes) * bytes * set.at_once / cluster.node_rate;
  const double local = share_of_others(set.ranks_per_node) * bytes / cluster.local_rate;
  const double rounds =
      rounds_of(choose_schedule(set.nodes), set.nodes) + (set.ranks_per_node > 1 ? 1 : 0);
  return rounds * cluster.round_seconds +
         std::max({network, local, host_seconds(cluster, set, bytes)});
}

PredictedStep predict_step(const StepPlan& plan, const Cluster& cluster) {
  std::vector<double> ends(static_cast<std::size_t>(plan.collectives) + 1);
  double network_free = 0;  // end of the last collective between nodes
  double nodes_free = 0;    // and of the last one within nodes
  double now = 0;
  for (const StepAction& action : plan.actions) {
    double& end = ends[static_cast<std::size_t>(action.collective)];
    switch (action.kind) {
      case StepAction::Kind::compute:
        now += action.seconds;
        break;
      case StepAction::Kind::wait:
        now = std::max(now, end);
        break;
      case StepAction::Kind::start: {
        const RankSet set = set_of(action.ranks, cluster, plan.shard_group);
        const double passes = action.what == StepCollective::all_reduce ? 2 : 1;
        double& free = set.nodes > 1 ? network_free : nodes_free;
        end = std::max(now, free) + passes * scatter_seconds(cluster, set, action.bytes);
        free = end;
        now += passes * host_seconds(cluster, set, action.bytes);
      }
    }
  }
  return {.compute = plan.compute_seconds(), .total = now};
}

PredictedStep predict_step(const Config& config, const Graph& graph, const Cluster& cluster,
                           double images_per_second) {
  return predict_step(
      plan_step(config, graph, {.ranks = cluster.ranks(), .images_per_second = images_per_second}),
      cluster);
}

}  // namespace lockstep
