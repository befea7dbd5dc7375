#include "lockstep/core/units.hpp"
#include "lockstep/doctor/judge.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace lockstep::doctor {
namespace {

/// The ranks of each node, by node name.
std::map<std::string, std::vector<const RankFacts*>> by_node(std::span<const RankFacts> ranks) {
  std::map<std::string, std::vector<const RankFacts*>> nodes;
  for (const RankFacts& rank : ranks) nodes[rank.node].push_back(&rank);
  return nodes;
}

bool masks_overlap_in_part(const std::vector<const RankFacts*>& ranks) {
  for (const RankFacts* one : ranks) {
    for (const RankFacts* other : ranks) {
      const bool meet =
          std::find_first_of(one->cores.begin(), one->cores.end(), other->cores.begin(),
                             other->cores.end()) != one->cores.end();
      if (meet && one->cores != other->cores) return true;
    }
  }
  return false;
}

std::string cores_text(const std::map<std::string, std::vector<const RankFacts*>>& nodes) {
  const auto& [node, ranks] = *nodes.begin();
  std::set<std::size_t> counts;
  std::set<std::size_t> sizes;
  for (const auto& [name, members] : nodes) {
    counts.insert(members.size());
    for (const RankFacts* rank : members) sizes.insert(rank->cores.size());
  }
  const auto span = [](const std::set<std::size_t>& values) {
    return *values.begin() == *values.rbegin()
               ? fmt::format("{}", *values.begin())
               : fmt::format("{} to {}", *values.begin(), *values.rbegin());
  };
  return fmt::format("{} a node, {} cores each (rank {} on {}: cores {} of {})",
                     span(counts) + (counts == std::set<std::size_t>{1} ? " rank" : " ranks"),
                     span(sizes), ranks.front()->rank, node, core_list(ranks.front()->cores),
                     ranks.front()->node_cores);
}

}  // namespace

Finding judge_ranks(const WorldFacts& world) {
  const LaunchFacts& launch = world.launch;
  Finding finding{
      .check = "ranks",
      .values = {
          {"ranks", world.size}, {"nodes", world.nodes}, {"start_seconds", world.start_seconds}}};
  finding.text = fmt::format(
      "{} on {}, started by {} in {}, {}", count_text(static_cast<std::size_t>(world.size), "rank"),
      count_text(static_cast<std::size_t>(world.nodes), "node"), launcher_text(launch.launcher),
      time_text(world.start_seconds), world.library);
  if (const auto problem = judge_launch(launch, world.size, world.library)) {
    finding.become(problem->is_certain ? Verdict::fail : Verdict::warn, "{}", problem->text);
  }
  return finding;
}

Finding judge_start(const LaunchFacts& launch, const std::string& host, const std::string& what) {
  return {
      .check = "mpi",
      .verdict = Verdict::fail,
      .text = fmt::format("MPI does not start on {} ({}; process {} of {} by {}: a process that "
                          "never came, a node that cannot be reached, or a PMI that does not fit) "
                          "{}; see whether it starts on each node alone",
                          host, what, launch.process,
                          launch.started ? fmt::format("{}", *launch.started) : "an unknown count",
                          launcher_text(launch.launcher), launch_advice(launch.launcher))};
}

Finding judge_answers(std::span<const SilentRank> silent) {
  if (silent.empty()) return {.check = "answers", .text = "every rank answered"};
  std::vector<std::string> names;
  for (const SilentRank& rank : silent) {
    names.push_back(fmt::format("rank {}{} at {} within {:.0f} s", rank.rank,
                                rank.node.empty() ? "" : fmt::format(" ({})", rank.node),
                                rank.phase, rank.seconds));
  }
  constexpr std::size_t shown = 8;
  const bool more = names.size() > shown;
  if (more) names.resize(shown);
  return {.check = "answers",
          .verdict = Verdict::fail,
          .text = fmt::format("no answer from {}{} (it hangs, or rank 0 cannot reach it); look at "
                              "that node, and at the network between; or exclude it with --exclude",
                              fmt::join(names, ", "),
                              more ? fmt::format(" and {} more", silent.size() - shown) : ""),
          .values = {{"silent", static_cast<double>(silent.size())}}};
}

Finding judge_interface(std::span<const RankFacts> ranks, const std::string& asked) {
  for (const RankFacts& rank : ranks) {
    if (rank.interface_error.empty()) continue;
    return {.check = "interface",
            .verdict = Verdict::fail,
            .text = fmt::format("{}: {}", rank.node, rank.interface_error)};
  }
  return {.check = "interface",
          .text = fmt::format("every node has --watchdog-interface {}", asked)};
}

Finding judge_cores(std::span<const RankFacts> ranks) {
  const auto nodes = by_node(ranks);
  Finding finding{.check = "cores", .text = cores_text(nodes)};
  std::size_t smallest = nodes.begin()->second.size();
  std::size_t largest = smallest;
  for (const auto& [node, members] : nodes) {
    smallest = std::min(smallest, members.size());
    largest = std::max(largest, members.size());
    std::set<int> cores;
    for (const RankFacts* rank : members) cores.insert(rank->cores.begin(), rank->cores.end());
    const RankFacts& first = *members.front();
    if (cores.empty()) continue;  // unknown
    if (cores.size() < members.size()) {
      return finding.become(Verdict::warn,
                            "{} share {} on {} (cores {}; they wait for each other); start fewer "
                            "ranks a node, or ask for more cores with --cpus-per-task",
                            count_text(members.size(), "rank"), count_text(cores.size(), "core"),
                            node, core_list({cores.begin(), cores.end()}));
    }
    const auto each = static_cast<std::size_t>(first.node_cores) / members.size();
    if (first.cores.size() == 1 && each >= 2) {
      return finding.become(Verdict::warn,
                            "rank {} may use one core of {}'s {} (the launcher bound it to core "
                            "{}); start with srun --cpus-per-task={}, or mpirun --bind-to none",
                            first.rank, node, first.node_cores, first.cores.front(), each);
    }
    if (masks_overlap_in_part(members)) {
      return finding.become(
          Verdict::warn,
          "the ranks' cores on {} overlap in part (rank {} has {}; threads will not be pinned); "
          "give each rank cores of its own with srun --cpu-bind=cores, or all of them the same",
          node, first.rank, core_list(first.cores));
    }
  }
  finding.values = {{"ranks_per_node_least", static_cast<double>(smallest)},
                    {"ranks_per_node_most", static_cast<double>(largest)}};
  if (smallest != largest) {
    finding.become(Verdict::warn,
                   "{} to {} ranks a node (they share their node's cores and network unevenly, so "
                   "some wait); use --ntasks-per-node",
                   smallest, largest);
  }
  return finding;
}

}  // namespace lockstep::doctor
