#include "judge_links.hpp"

#include "lockstep/core/units.hpp"
#include "median.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace lockstep::doctor {
namespace {

/// Share of TCP's segments that were retransmitted. Busy switches of a sound network lose a
/// thousandth at most; a hundredth costs TCP most of its rate.
constexpr double lossy = 0.005;
/// Fewer may be by chance.
constexpr std::uint64_t least_retransmitted = 5;
/// A latency is poor if it is this many times that of the median node, and longer than the delay of
/// a busy core.
constexpr double late_factor = 10;
constexpr double late_seconds = 5e-3;

/// What a node's own link allows: the best of its pairs.
struct NodeLink {
  std::string node;
  double bandwidth = 0;
  double latency = std::numeric_limits<double>::infinity();
  double loss = 1;  ///< share of segments retransmitted
  std::size_t pairs = 0;
};

double loss_of(const SegmentFacts& segments) {
  return segments.retransmitted < least_retransmitted || segments.sent == 0
             ? 0
             : static_cast<double>(segments.retransmitted) / static_cast<double>(segments.sent);
}

std::vector<NodeLink> links_of(std::span<const std::string> nodes,
                               std::span<const NodePairFacts> pairs) {
  std::vector<NodeLink> links;
  for (const std::string& node : nodes) links.push_back({.node = node});
  for (const NodePairFacts& pair : pairs) {
    for (const int node : {pair.first, pair.second}) {
      NodeLink& link = links[static_cast<std::size_t>(node)];
      link.bandwidth = std::max(link.bandwidth, pair.bandwidth);
      link.latency = std::min(link.latency, pair.latency);
      link.loss = std::min(link.loss, loss_of(pair.segments));
      ++link.pairs;
    }
  }
  // With one other node, a pair does not tell which of both is slow.
  std::erase_if(links, [](const NodeLink& link) { return link.pairs < 2; });
  return links;
}

template <typename Value>
double median_of(const std::vector<NodeLink>& links, Value value) {
  std::vector<double> values;
  values.reserve(links.size());
  for (const NodeLink& link : links) values.push_back(link.*value);
  return median(std::move(values));
}

bool is_lossy_link(const NodeLink& link) {
  return link.loss >= lossy;
}

/// Does not tell which nodes lose packets: if two of three do, all pairs are lossy.
LinksFinding losses_everywhere(const std::vector<NodeLink>& links) {
  const double least = std::ranges::min(links, {}, &NodeLink::loss).loss;
  return {.text = fmt::format(
              "packets are lost between all nodes: at least {:.1f} % of TCP's segments were sent "
              "again; look at the switch, or at the cables of several nodes",
              100 * least),
          .values = {{"loss", least}}};
}

}  // namespace

std::optional<LinksFinding> judge_links(std::span<const std::string> nodes,
                                        std::span<const NodePairFacts> pairs) {
  const std::vector<NodeLink> links = links_of(nodes, pairs);
  const double bandwidth = median_of(links, &NodeLink::bandwidth);
  const double latency = median_of(links, &NodeLink::latency);
  if (links.size() > 1 && std::ranges::all_of(links, is_lossy_link))
    return losses_everywhere(links);
  LinksFinding finding;
  std::vector<std::string> names;
  for (const NodeLink& link : links) {
    const bool loses = is_lossy_link(link);
    const bool is_slow = link.bandwidth * slow_factor < bandwidth ||
                         link.latency > std::max(late_seconds, late_factor * latency);
    if (!loses && !is_slow) continue;
    finding.text += fmt::format(
        "{}the link of {} {}: {}best pair {}, {}", names.empty() ? "" : "; ", link.node,
        loses ? "loses packets" : "is slow",
        loses ? fmt::format("{:.1f} % of TCP's segments were sent again, ", 100 * link.loss) : "",
        rate_text(link.bandwidth), time_text(link.latency));
    finding.values.emplace_back((loses ? "lossy_" : "slow_") + link.node,
                                loses ? link.loss : link.bandwidth);
    names.push_back(link.node);
  }
  if (names.empty()) return std::nullopt;
  finding.text += fmt::format(
      " (the median node: {}, {}; each step waits for the slowest link); look at cables, ports and "
      "switches, or leave {} out with --exclude={}",
      rate_text(bandwidth), time_text(latency), names.size() == 1 ? "it" : "them",
      fmt::join(names, ","));
  return finding;
}

bool is_lossy(const NodePairFacts& pair) {
  return loss_of(pair.segments) >= lossy;
}

}  // namespace lockstep::doctor
