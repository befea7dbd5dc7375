#include "figures.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/doctor/judge.hpp"

#include <algorithm>

namespace lockstep::doctor {
namespace {

/// Shorter reads are not judged: a single delay may dominate them.
constexpr double telling_seconds = 0.1;
/// Seconds. A slower rename dominates the end of each save and points to Lustre's metadata server.
constexpr double slow_rename = 1;

double rate_of(const ReadFacts& read) {
  return read.seconds > 0 ? static_cast<double>(read.bytes) / read.seconds : 0;
}

const ReadFacts& best_read(const DataFacts& node) {
  return *std::ranges::max_element(node.reads, {},
                                   [](const ReadFacts& read) { return rate_of(read); });
}

double rate_of(const DataFacts& node) {
  return rate_of(best_read(node));
}

double median_rate(std::span<const DataFacts> nodes) {
  std::vector<double> rates;
  rates.reserve(nodes.size());
  for (const DataFacts& node : nodes) rates.push_back(rate_of(node));
  return median(std::move(rates));
}

bool has_error(const DataFacts& node) {
  return !node.error.empty();
}

}  // namespace

std::vector<std::string> slow_readers(std::span<const DataFacts> nodes) {
  std::vector<std::string> names;
  if (nodes.size() <= 2 || std::ranges::any_of(nodes, has_error)) return names;
  const double usual = median_rate(nodes);
  for (const DataFacts& node : nodes) {
    if (best_read(node).seconds > telling_seconds && rate_of(node) * slow_factor < usual) {
      names.push_back(node.node);
    }
  }
  return names;
}

Finding judge_data(const std::string& directory, std::span<const DataFacts> nodes) {
  Finding finding{.check = "data"};
  const auto failed = std::ranges::find_if(nodes, has_error);
  if (failed != nodes.end()) {
    return finding.become(Verdict::fail, "on {}: {}", failed->node, failed->error);
  }
  const DataFacts* slowest = nullptr;
  for (const DataFacts& node : nodes) {
    if (node.shards != nodes.front().shards) {
      return finding.become(Verdict::fail,
                            "{} has {} shards of split train on {}, {} on {} (all nodes must see "
                            "the same); name a directory that they share",
                            directory, nodes.front().shards, nodes.front().node, node.shards,
                            node.node);
    }
    if (slowest == nullptr || rate_of(node) < rate_of(*slowest)) slowest = &node;
  }
  const double usual = median_rate(nodes);
  finding.values = {{"shards", static_cast<double>(slowest->shards)},
                    {"bandwidth_least", rate_of(*slowest)},
                    {"bandwidth_median", usual}};
  finding.text = fmt::format(
      "{} shards of split train, read at {}{}", slowest->shards, rate_text(rate_of(*slowest)),
      nodes.size() > 1 ? fmt::format(" or more by each of {} nodes at once ({} is slowest)",
                                     nodes.size(), slowest->node)
                       : std::string());
  const std::vector<std::string> slow = slow_readers(nodes);
  if (std::ranges::find(slow, slowest->node) != slow.end()) {
    finding.become(
        Verdict::warn,
        "{} reads {} at {}{} where other nodes read at {} (each step waits for the slowest); look "
        "at its mount, or exclude it with --exclude={}",
        slowest->node, directory, rate_text(rate_of(*slowest)),
        figures(slowest->reads, [](const ReadFacts& read) { return rate_text(rate_of(read)); }),
        rate_text(usual), slowest->node);
  }
  return finding;
}

bool is_slow_rename(double seconds) {
  return seconds > slow_rename;
}

Finding judge_run_directory(const RunDirectoryFacts& facts,
                            std::span<const SharedDirectoryFacts> others) {
  const std::vector<double>& renames = facts.rename_seconds;
  const double rename = renames.empty() ? 0 : std::ranges::min(renames);
  Finding finding{.check = "run-dir",
                  .values = {{"write_bandwidth", facts.write_rate}, {"rename_seconds", rename}}};
  if (!facts.error.empty()) return finding.become(Verdict::fail, "{}", facts.error);
  for (const SharedDirectoryFacts& other : others) {
    if (!other.sees_file) {
      return finding.become(Verdict::fail,
                            "{} does not see in {} what rank 0's node wrote there (the directory "
                            "is not shared; {}); name one that all nodes share",
                            other.node, facts.path, other.error);
    }
    if (!other.can_write) {
      return finding.become(Verdict::fail,
                            "{} cannot write in {} ({}); check its mount and permissions",
                            other.node, facts.path, other.error);
    }
  }
  if (!facts.lock_error.empty()) {
    return finding.become(Verdict::warn,
                          "{} has no file locks ({}; two jobs in one run directory are told apart "
                          "by the holder's heartbeat alone, which takes a minute); mount it with "
                          "locks (Lustre: -o flock), or name another",
                          facts.path, facts.lock_error);
  }
  for (const SharedDirectoryFacts& other : others) {
    if (!other.got_lock) continue;
    return finding.become(
        Verdict::warn,
        "file locks in {} do not reach from node to node ({} got one that rank 0's node holds; the "
        "holder's heartbeat alone tells two jobs apart); mount it with locks of the whole cluster "
        "(Lustre: -o flock, not localflock), or name another",
        facts.path, other.node);
  }
  if (is_slow_rename(rename)) {
    return finding.become(
        Verdict::warn,
        "a rename in {} takes {}{} (each save ends in one, and waits); name a quicker file system",
        facts.path, time_text(rename), figures(renames, time_text));
  }
  return finding.become(
      Verdict::ok, "written at {}, renamed in {}, locks work{}{}", rate_text(facts.write_rate),
      time_text(rename), others.empty() ? "" : " between nodes",
      facts.no_links.empty() ? std::string()
                             : fmt::format("; no symbolic links ({}): latest and best will be text "
                                           "files with a checkpoint's name",
                                           facts.no_links));
}

Finding judge_space(const SpaceFacts& facts) {
  const double one = static_cast<double>(facts.checkpoint);
  const double all = one * static_cast<double>(facts.kept);
  const double free = static_cast<double>(facts.free);
  Finding finding{.check = "space",
                  .values = {{"free", free}, {"checkpoint", one}, {"needed", all}}};
  if (!facts.refused.empty() || free < one) {
    return finding.become(Verdict::fail,
                          "a checkpoint of {} takes {}, and {} has no room for one ({} free{}); "
                          "make room, or name another --run-dir",
                          facts.model, size_text(one), facts.path, size_text(free),
                          facts.refused.empty() ? std::string() : "; " + facts.refused);
  }
  finding.text = fmt::format("{} free for {} checkpoints of {} ({} each)", size_text(free),
                             facts.kept, facts.model, size_text(one));
  if (free < all) {
    finding.become(Verdict::warn,
                   "{} free where {} checkpoints of {} take {} ({} each: those kept, the best, and "
                   "the one being written); make room, or lower --keep",
                   size_text(free), facts.kept, facts.model, size_text(all), size_text(one));
  }
  return finding;
}

}  // namespace lockstep::doctor
