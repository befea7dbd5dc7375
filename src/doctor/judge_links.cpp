#include "judge_links.hpp"

#include "figures.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/doctor/judge.hpp"

#include <algorithm>

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
  const NodePairFacts* fastest = nullptr;   ///< by bandwidth
  const NodePairFacts* nearest = nullptr;   ///< by latency
  const NodePairFacts* soundest = nullptr;  ///< by loss
  std::size_t pairs = 0;
};

/// The share of segments that were retransmitted.
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
      const bool is_first = link.pairs++ == 0;
      if (is_first || pair.bandwidth > link.fastest->bandwidth) link.fastest = &pair;
      if (is_first || pair.latency < link.nearest->latency) link.nearest = &pair;
      if (is_first || loss_of(pair.segments) < loss_of(link.soundest->segments)) {
        link.soundest = &pair;
      }
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
  for (const NodeLink& link : links) values.push_back(value(link));
  return median(std::move(values));
}

bool is_lossy_link(const NodeLink& link) {
  return is_lossy(*link.soundest);
}

std::string percent_text(const SegmentFacts& segments) {
  return fmt::format("{:.1f} %", 100 * loss_of(segments));
}

std::string loss_figures(const NodePairFacts& pair) {
  return figures(pair.measured, [](const auto& one) { return percent_text(one.segments); });
}

std::string speed_figures(const NodePairFacts& pair) {
  return figures(pair.measured, [](const auto& one) {
    return fmt::format("{} {}", rate_text(one.bandwidth), time_text(one.latency));
  });
}

/// Does not tell which nodes lose packets: if two of three do, all pairs are lossy.
LinksFinding losses_everywhere(const std::vector<NodeLink>& links) {
  const auto loss = [](const NodeLink& link) { return loss_of(link.soundest->segments); };
  const NodePairFacts* const least = std::ranges::min(links, {}, loss).soundest;
  return {
      .text = fmt::format("packets are lost between all nodes: at least {} of TCP's segments were "
                          "sent again{}; look at the switch, or at the cables of several nodes",
                          percent_text(least->segments), loss_figures(*least)),
      .values = {{"loss", loss_of(least->segments)}},
      .pairs = {least}};
}

}  // namespace

std::optional<LinksFinding> judge_links(std::span<const std::string> nodes,
                                        std::span<const NodePairFacts> pairs) {
  const std::vector<NodeLink> links = links_of(nodes, pairs);
  const double bandwidth =
      median_of(links, [](const NodeLink& link) { return link.fastest->bandwidth; });
  const double latency =
      median_of(links, [](const NodeLink& link) { return link.nearest->latency; });
  if (links.size() > 1 && std::ranges::all_of(links, is_lossy_link))
    return losses_everywhere(links);
  LinksFinding finding;
  std::vector<std::string> names;
  for (const NodeLink& link : links) {
    const bool loses = is_lossy_link(link);
    const bool is_narrow = link.fastest->bandwidth * slow_factor < bandwidth;
    const bool is_late = link.nearest->latency > std::max(late_seconds, late_factor * latency);
    if (!loses && !is_narrow && !is_late) continue;
    const NodePairFacts* const pair = loses       ? link.soundest
                                      : is_narrow ? link.fastest
                                                  : link.nearest;
    finding.text +=
        fmt::format("{}the link of {} {}: {}best pair {}, {}{}", names.empty() ? "" : "; ",
                    link.node, loses ? "loses packets" : "is slow",
                    loses ? fmt::format("{} of TCP's segments were sent again{}, ",
                                        percent_text(pair->segments), loss_figures(*pair))
                          : "",
                    rate_text(link.fastest->bandwidth), time_text(link.nearest->latency),
                    loses ? "" : speed_figures(*pair));
    finding.values.emplace_back((loses ? "lossy_" : "slow_") + link.node,
                                loses ? loss_of(pair->segments) : link.fastest->bandwidth);
    finding.pairs.push_back(pair);
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

void add_measurement(NodePairFacts& pair, const NodePairFacts& again) {
  pair.error = again.error;
  if (!again.error.empty()) return;
  if (pair.measured.empty()) {
    pair.measured.push_back(
        {.latency = pair.latency, .bandwidth = pair.bandwidth, .segments = pair.segments});
  }
  pair.measured.push_back(
      {.latency = again.latency, .bandwidth = again.bandwidth, .segments = again.segments});
  pair.latency = std::min(pair.latency, again.latency);
  pair.bandwidth = std::max(pair.bandwidth, again.bandwidth);
  if (loss_of(again.segments) < loss_of(pair.segments)) pair.segments = again.segments;
}

bool is_lossy(const NodePairFacts& pair) {
  return loss_of(pair.segments) >= lossy;
}

}  // namespace lockstep::doctor
