#include "lockstep/train/replica_check.hpp"

#include "host_list.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/name_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

constexpr std::size_t piece_values = std::size_t{1} << 20;

}  // namespace

ReplicaCheck::ReplicaCheck(Engine& engine, Communicator& comm, std::vector<std::string> hosts)
    : engine_(engine),
      comm_(comm),
      hosts_(std::move(hosts)),
      piece_(std::min(piece_values, engine.layout().size())) {}

std::uint64_t ReplicaCheck::checksum() {
  const std::span<const float> arena = engine_.parameters();
  std::uint32_t crc = 0;
  for (std::size_t begin = 0; begin < arena.size(); begin += piece_.size()) {
    const auto part = arena.subspan(begin, std::min(piece_.size(), arena.size() - begin));
    const std::span<float> copy = piece_.span().first(part.size());
    engine_.read(part, copy);
    crc = crc32c(std::as_bytes(copy), crc);
  }
  const std::span<const float> statistics = engine_.running_statistics();
  return (std::uint64_t{crc} << 32) | crc32c(std::as_bytes(statistics));
}

void ReplicaCheck::run(std::int64_t step) {
  const std::uint64_t mine = checksum();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather(std::span(&mine, 1), std::span(all));
  const std::vector<int> wrong = differing_ranks(all);
  if (wrong.empty()) {
    alike_at_ = step;
    return;
  }
  std::vector<std::string> names;
  std::vector<std::string> hosts;
  for (const int rank : wrong) {
    const std::string& host = hosts_[static_cast<std::size_t>(rank)];
    names.push_back(fmt::format("rank {} ({})", rank, host));
    hosts.push_back(host);
  }
  const bool unclear = wrong.size() == all.size();
  const std::string since =
      alike_at_ < 0 ? "since the run began" : fmt::format("since step {}", alike_at_);
  fail(ExitStatus::internal,
       "the replicas have drifted apart at step {}: {} {} (a bit flipped in memory or on a "
       "device {}, or a rank computed otherwise) nothing is saved; submit the job again, {}",
       step, listed(names),
       unclear ? "hold different parameters, and no value is that of most"
               : fmt::format("hold{} other parameters than the other {}",
                             wrong.size() == 1 ? "s" : "", all.size() - wrong.size()),
       since,
       unclear ? std::string("on other nodes if it comes again")
               : fmt::format("without the node if it comes again: --exclude={}", host_list(hosts)));
}

std::vector<int> differing_ranks(std::span<const std::uint64_t> checksums) {
  std::map<std::uint64_t, std::size_t> counts;
  for (const std::uint64_t value : checksums) ++counts[value];
  std::vector<int> ranks;
  if (counts.size() <= 1) return ranks;
  const auto most = std::ranges::max_element(
      counts, [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool clear = 2 * most->second > checksums.size();
  for (std::size_t rank = 0; rank < checksums.size(); ++rank) {
    if (!clear || checksums[rank] != most->first) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace lockstep
