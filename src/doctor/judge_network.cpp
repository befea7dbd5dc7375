#include "figures.hpp"
#include "judge_links.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/doctor/judge.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>

namespace lockstep::doctor {
namespace {

/// Bandwidth between nodes, bytes per second; a lower one indicates Gigabit Ethernet or less.
constexpr double poor_bandwidth = 200e6;
/// Seconds. Clocks that differ by more make logs and file times hard to read; time synchronisation
/// keeps them within milliseconds.
constexpr double large_offset = 1;

/// The worst values over a set of links.
struct Range {
  double worst_latency = 0;
  double worst_bandwidth = 0;
};
template <typename Links>
Range range_of(const Links& links) {
  Range range{.worst_bandwidth = INFINITY};
  for (const auto* link : links) {
    range.worst_latency = std::max(range.worst_latency, link->latency);
    range.worst_bandwidth = std::min(range.worst_bandwidth, link->bandwidth);
  }
  return range;
}

/// The slowest working pair; null if there is none.
template <typename Pair>
Pair* slowest(std::span<Pair> pairs) {
  Pair* worst = nullptr;
  for (Pair& pair : pairs) {
    if (!pair.error.empty()) continue;
    if (worst == nullptr || pair.bandwidth < worst->bandwidth) worst = &pair;
  }
  return worst;
}

/// The slowest pair if its bandwidth is far below the median of at least `enough` working pairs.
template <typename Pair>
Pair* outlier(std::span<Pair> pairs) {
  constexpr std::size_t enough = 3;
  std::vector<double> rates;
  for (const Pair& pair : pairs) {
    if (pair.error.empty()) rates.push_back(pair.bandwidth);
  }
  if (rates.size() < enough) return nullptr;
  Pair* const worst = slowest(pairs);
  return worst->bandwidth * slow_factor < median(std::move(rates)) ? worst : nullptr;
}

std::string links_text(const std::vector<const LinkFacts*>& links, const char* where) {
  const Range range = range_of(links);
  return fmt::format("{} {} at {} or less and {} or more", count_text(links.size(), "pair"), where,
                     time_text(range.worst_latency), rate_text(range.worst_bandwidth));
}

/// "110 MB/s", with all measurements.
std::string pair_rate(const NodePairFacts& pair) {
  return rate_text(pair.bandwidth) +
         figures(pair.measured, [](const auto& one) { return rate_text(one.bandwidth); });
}

bool is_sure(const NodePairFacts& pair) {
  return pair.measured.size() >= measurements_to_find;
}

std::string pair_name(std::span<const std::string> nodes, const NodePairFacts& pair) {
  return fmt::format("{} and {}", nodes[static_cast<std::size_t>(pair.first)],
                     nodes[static_cast<std::size_t>(pair.second)]);
}

/// A failed route between two nodes, by name.
struct BadRoute {
  std::string from;
  std::string to;
  const RouteFacts* route;
};
std::vector<BadRoute> bad_routes(std::span<const std::string> nodes, const NodePairFacts& pair) {
  std::vector<BadRoute> bad;
  const std::string& first = nodes[static_cast<std::size_t>(pair.first)];
  const std::string& second = nodes[static_cast<std::size_t>(pair.second)];
  for (const RouteFacts& route : pair.routes) {
    if (!route.error.empty()) bad.push_back({first, second, &route});
  }
  for (const RouteFacts& route : pair.back) {
    if (!route.error.empty()) bad.push_back({second, first, &route});
  }
  return bad;
}

std::string route_text(const BadRoute& bad) {
  return fmt::format("{} does not reach {} over {} ({}: {})", bad.from, bad.to,
                     bad.route->interface, bad.route->address, bad.route->error);
}

/// ", and 2 more pairs" after the one that the text names; `count` includes that one.
std::string and_more(std::size_t count, const char* what) {
  return count <= 1 ? std::string() : fmt::format(", and {} more", count_text(count - 1, what));
}

std::optional<Finding> unreachable_pair(std::span<const std::string> nodes,
                                        std::span<const NodePairFacts> pairs) {
  std::vector<const NodePairFacts*> lost;
  for (const NodePairFacts& pair : pairs) {
    if (!pair.error.empty()) lost.push_back(&pair);
  }
  if (lost.empty()) return std::nullopt;
  const NodePairFacts& pair = *lost.front();
  const auto bad = bad_routes(nodes, pair);
  return Finding{
      .check = "nodes",
      .verdict = Verdict::fail,
      .text = fmt::format(
          "{} do not reach each other by MPI ({}; {}){} leave one out with --exclude, or name the "
          "interface that works: OMPI_MCA_btl_tcp_if_include, NCCL_SOCKET_IFNAME",
          pair_name(nodes, pair), pair.error,
          bad.empty() ? "TCP does, over every interface" : route_text(bad.front()),
          and_more(lost.size(), "pair")),
      .values = {{"pairs", static_cast<double>(pairs.size())},
                 {"unreachable", static_cast<double>(lost.size())}}};
}

std::string routes_text(std::span<const BadRoute> bad) {
  std::set<std::string> names;
  for (const BadRoute& each : bad) names.insert(each.route->interface);
  return fmt::format(
      "{}{}; MPI goes another way, but NCCL or another MPI may take this interface: leave it out "
      "with NCCL_SOCKET_IFNAME=^{} and OMPI_MCA_btl_tcp_if_exclude=lo,{}",
      route_text(bad.front()), and_more(bad.size(), "route"), fmt::join(names, ","),
      fmt::join(names, ","));
}

}  // namespace

Finding judge_neighbours(std::span<const LinkFacts> links) {
  Finding finding{.check = "neighbours"};
  if (links.empty()) {
    finding.text = "one rank has none";
    return finding;
  }
  std::vector<const LinkFacts*> inside;
  std::vector<const LinkFacts*> between;
  for (const LinkFacts& link : links) {
    if (!link.error.empty()) {
      return finding.become(Verdict::fail, "ranks {} and {} do not reach each other ({}) {}",
                            link.first, link.second, link.error,
                            link.same_node
                                ? "look for leftovers in /dev/shm and at its size"
                                : "see the line on nodes, and name the interface that works");
    }
    (link.same_node ? inside : between).push_back(&link);
  }
  std::string text;
  if (!inside.empty()) {
    text = links_text(inside, "in a node");
    finding.values = {{"latency_in_node", range_of(inside).worst_latency},
                      {"bandwidth_in_node", range_of(inside).worst_bandwidth}};
  }
  if (!between.empty()) {
    text += (text.empty() ? "" : ", ") + links_text(between, "across nodes");
    finding.values.emplace_back("latency_across_nodes", range_of(between).worst_latency);
    finding.values.emplace_back("bandwidth_across_nodes", range_of(between).worst_bandwidth);
  }
  finding.text = text;
  return finding;
}

NodePairFacts* suspect_pair(std::span<const std::string> nodes, std::span<NodePairFacts> pairs) {
  const auto has_failed = [](const NodePairFacts& pair) { return !pair.error.empty(); };
  if (std::ranges::any_of(pairs, has_failed)) return nullptr;
  if (const auto links = judge_links(nodes, pairs)) {
    const auto unsure = std::ranges::find_if_not(
        links->pairs, [](const NodePairFacts* pair) { return is_sure(*pair); });
    return unsure == links->pairs.end() ? nullptr
                                        : &pairs[static_cast<std::size_t>(*unsure - pairs.data())];
  }
  NodePairFacts* worst = outlier(pairs);
  if (worst == nullptr) {
    worst = slowest(pairs);
    if (worst != nullptr && worst->bandwidth >= poor_bandwidth) return nullptr;
  }
  return worst != nullptr && !is_sure(*worst) ? worst : nullptr;
}

Finding judge_nodes(std::span<const std::string> nodes, std::span<const NodePairFacts> pairs) {
  Finding finding{.check = "nodes", .values = {{"pairs", static_cast<double>(pairs.size())}}};
  if (nodes.size() < 2) {
    finding.text = "one node has no others to reach";
    return finding;
  }
  if (auto lost = unreachable_pair(nodes, pairs)) return *std::move(lost);
  std::vector<const NodePairFacts*> all;
  std::vector<BadRoute> bad;
  const auto links = judge_links(nodes, pairs);
  for (const NodePairFacts& pair : pairs) {
    all.push_back(&pair);
    // A connection whose first packet is lost looks like a bad route.
    if (links && is_lossy(pair)) continue;
    std::ranges::move(bad_routes(nodes, pair), std::back_inserter(bad));
  }
  if (all.empty()) {
    return finding.become(
        Verdict::fail, "no two nodes could be tried (their first ranks do not answer); see above");
  }
  const Range range = range_of(all);
  finding.values.emplace_back("latency", range.worst_latency);
  finding.values.emplace_back("bandwidth", range.worst_bandwidth);
  if (links) {
    finding.become(Verdict::warn, "{}{}{}", links->text, bad.empty() ? "" : "; ",
                   bad.empty() ? "" : routes_text(bad));
    finding.values.insert(finding.values.end(), links->values.begin(), links->values.end());
    return finding;
  }
  if (!bad.empty()) return finding.become(Verdict::warn, "{}", routes_text(bad));
  if (const NodePairFacts* slow = outlier(pairs)) {
    return finding.become(Verdict::warn,
                          "{} move {} between them, far below the other pairs (each step waits for "
                          "the slowest); look at their links, or leave one out with --exclude",
                          pair_name(nodes, *slow), pair_rate(*slow));
  }
  finding.text = fmt::format("every node reaches every other: {} at {} or less and {} or more",
                             count_text(all.size(), "pair"), time_text(range.worst_latency),
                             rate_text(range.worst_bandwidth));
  if (range.worst_bandwidth < poor_bandwidth) {
    finding.become(
        Verdict::warn,
        "nodes move {} between them (an Ethernet of the management, rather than the fast "
        "network?); name the fast interface: OMPI_MCA_btl_tcp_if_include, or an MPI built for it",
        pair_rate(*slowest(pairs)));
  }
  return finding;
}

Finding judge_clocks(std::span<const ClockFacts> clocks) {
  Finding finding{.check = "clock", .text = "one node has one clock"};
  const ClockFacts* worst = nullptr;
  for (const ClockFacts& clock : clocks) {
    if (worst == nullptr || std::abs(clock.offset) > std::abs(worst->offset)) worst = &clock;
  }
  if (worst == nullptr) return finding;
  finding.values = {{"largest_offset", worst->offset}};
  if (std::abs(worst->offset) > large_offset + worst->uncertainty) {
    return finding.become(
        Verdict::warn,
        "{}'s clock is {} {} that of rank 0's node (logs and file times mislead, and Slurm's munge "
        "refuses minutes); check its time synchronization, or exclude it with --exclude={}",
        worst->node, time_text(std::abs(worst->offset)), worst->offset > 0 ? "ahead of" : "behind",
        worst->node);
  }
  finding.text = fmt::format("{} within {} of rank 0's", count_text(clocks.size(), "node"),
                             time_text(std::abs(worst->offset) + worst->uncertainty));
  return finding;
}

}  // namespace lockstep::doctor
