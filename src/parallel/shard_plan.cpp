#include "lockstep/parallel/shard_plan.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

namespace lockstep {
namespace {

/// What a layer forms a unit with: the rest of its stage or block; outside both, itself.
struct Group {
  int stage = -1;
  int block = -1;
  const Node* layer = nullptr;
  friend bool operator==(const Group&, const Group&) = default;
};

/// By block, the layers of a stage outside its blocks are a group.
Group group_of(const Node& node, ShardUnit::By by) {
  if (by == ShardUnit::By::size || (node.stage < 0 && node.block < 0)) return {.layer = &node};
  const bool by_stage = by == ShardUnit::By::stage && node.stage >= 0;
  return {.stage = node.stage, .block = by_stage ? -1 : node.block};
}

/// Consecutive parameters of one group, in the graph's order.
struct Run {
  Group group;
  std::vector<std::size_t> parameters;
  std::int64_t values = 0;
  bool has_weight = false;
};

std::vector<Run> runs_of(const Graph& graph, ShardUnit::By by) {
  std::vector<Run> runs;
  for (const Node& node : graph.nodes()) {
    const Group group = group_of(node, by);
    for (const ParameterId parameter_id : node.parameters) {
      const auto id = static_cast<std::size_t>(parameter_id);
      const Parameter& parameter = graph.parameters()[id];
      const bool is_lone_norm = group.layer != nullptr && parameter.kind == ParameterKind::norm;
      // A norm outside blocks joins the layer before it.
      if (runs.empty() ||
          (runs.back().group != group && !(is_lone_norm && runs.back().has_weight))) {
        runs.push_back({.group = group, .parameters = {}});
      }
      Run& run = runs.back();
      run.parameters.push_back(id);
      run.values += parameter.shape.elements();
      run.has_weight = run.has_weight || parameter.kind == ParameterKind::weight;
    }
  }
  return runs;
}

}  // namespace

std::vector<int> plan_units(const Graph& graph, const ShardUnit& unit) {
  std::vector<int> unit_of(graph.parameters().size());
  int number = 0;
  std::int64_t values = 0;
  std::vector<Run> runs = runs_of(graph, unit.by);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    for (const std::size_t id : runs[i].parameters) unit_of[id] = number;
    values += runs[i].values;
    std::int64_t left = 0;
    for (std::size_t j = i + 1; j < runs.size(); ++j) left += runs[j].values;
    // The remaining values must suffice for another unit.
    if (unit.by == ShardUnit::By::size && (values < unit.smallest || left < unit.smallest))
      continue;
    ++number;
    values = 0;
  }
  return unit_of;
}

std::vector<int> merge_units(std::vector<int> unit_of, const Graph& graph, std::int64_t most) {
  std::map<int, std::int64_t> sizes;
  for (std::size_t id = 0; id < unit_of.size(); ++id) {
    sizes[unit_of[id]] += graph.parameters()[id].shape.elements();
  }
  std::map<int, int> merged_of;
  int merged = 0;
  std::int64_t values = 0;
  for (auto unit = sizes.rbegin(); unit != sizes.rend(); ++unit) {
    if (values > 0 && values + unit->second > most) {
      ++merged;
      values = 0;
    }
    values += unit->second;
    merged_of[unit->first] = merged;
  }
  for (int& unit : unit_of) unit = merged_of.at(unit);
  return unit_of;
}

ShardPlan::ShardPlan(ArenaLayout unsharded, int rank, int ranks)
    : unsharded_(std::move(unsharded)), rank_(rank) {
  const auto parts = static_cast<std::size_t>(ranks);
  std::size_t view = 0;
  for (const ArenaUnit& unit : unsharded_.units) {
    assert(unit.begin % (parts * arena_alignment) == 0 && unit.size() % parts == 0);
    const ArenaUnit local{
        .begin = unit.begin / parts, .end = unit.end / parts, .in_fp32 = unit.in_fp32};
    const std::size_t begin = unit.begin + static_cast<std::size_t>(rank) * local.size();
    const std::size_t end = begin + local.size();
    for (; view < unsharded_.views.size() && unsharded_.views[view].offset < unit.end; ++view) {
      ArenaView kept = unsharded_.views[view];
      const std::size_t first = std::clamp(kept.offset, begin, end);
      const std::size_t last = std::clamp(kept.end(), begin, end);
      kept.offset = local.begin + (first - begin);
      kept.size = last - first;
      local_.views.push_back(kept);
    }
    local_.units.push_back(local);
  }
}

}  // namespace lockstep
