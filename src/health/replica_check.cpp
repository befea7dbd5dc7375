#include "lockstep/health/replica_check.hpp"

#include "lockstep/comm/mesh.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/name_list.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/health/host_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t buffer_values = std::size_t{1} << 20;

/// Views 16-bit values as floats, two in each. No tensor begins in the middle of a float: offsets
/// are multiples of arena_alignment.
std::span<const float> as_floats(std::span<const std::byte> values) {
  return {reinterpret_cast<const float*>(values.data()), values.size() / sizeof(float)};
}

}  // namespace

ReplicaCheck::ReplicaCheck(Engine& engine, Communicator& comm, std::vector<std::string> hosts,
                           const KeptShard& shard)
    : engine_(engine),
      comm_(comm),
      hosts_(std::move(hosts)),
      shard_(shard),
      held_(held()),
      buffer_(std::min(buffer_values, engine.layout().size())) {}

std::vector<ReplicaCheck::Held> ReplicaCheck::held_parameters() const {
  const ArenaLayout& layout = engine_.layout();
  if (const std::span<const float> unsharded = engine_.parameters(); !unsharded.empty()) {
    return tensors_in(layout, {{.begin = 0, .end = layout.size(), .values = unsharded}},
                      Scope::all);
  }
  std::vector<Run> runs;
  for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
    const std::span<const std::byte> values = engine_.held_unit(unit);
    if (values.empty()) continue;
    const ArenaUnit& place = layout.units[unit];
    runs.push_back({.begin = place.begin, .end = place.end, .values = as_floats(values)});
  }
  if (!runs.empty()) return tensors_in(layout, runs, Scope::all);
  if (shard_.sync == nullptr || shard_.ranks == comm_.size()) return {};
  for (const ParameterRange& range : shard_.sync->update_ranges()) {
    runs.push_back({.begin = range.begin,
                    .end = range.end,
                    .values = range.parameters.subspan(range.begin, range.end - range.begin)});
  }
  return tensors_in(shard_.sync->layout(), runs, Scope::shard);
}

std::vector<ReplicaCheck::Held> ReplicaCheck::tensors_in(const ArenaLayout& layout,
                                                         const std::vector<Run>& runs,
                                                         Scope scope) const {
  std::vector<Held> tensors;
  auto run = runs.begin();
  for (std::size_t i = 0; i < layout.views.size(); ++i) {
    const ArenaView& view = layout.views[i];
    while (view.end() > run->end) ++run;
    const std::size_t next = i + 1 < layout.views.size() ? layout.views[i + 1].offset : run->end;
    const std::size_t begin = run->place(view.offset);
    const std::size_t end = run->place(std::min(next, run->end));
    tensors.push_back(
        {.name = &engine_.graph().parameters()[static_cast<std::size_t>(view.parameter)].name,
         .values = run->values.subspan(begin, end - begin),
         .scope = scope,
         .on_host = false});
  }
  return tensors;
}

std::vector<ReplicaCheck::Held> ReplicaCheck::held() const {
  std::vector<Held> tensors = held_parameters();
  std::span<const float> statistics = engine_.running_statistics();
  for (const RunningStatistic& statistic : engine_.graph().statistics()) {
    const auto channels = static_cast<std::size_t>(statistic.channels);
    tensors.push_back({.name = &statistic.name,
                       .values = statistics.first(channels),
                       .scope = Scope::all,
                       .on_host = true});
    statistics = statistics.subspan(channels);
  }
  return tensors;
}

std::uint32_t ReplicaCheck::checksum(const Held& held, std::uint32_t crc) {
  if (held.on_host) return crc32c(std::as_bytes(held.values), crc);
  for (std::size_t begin = 0; begin < held.values.size(); begin += buffer_.size()) {
    const auto part =
        held.values.subspan(begin, std::min(buffer_.size(), held.values.size() - begin));
    const std::span<float> copy = buffer_.span().first(part.size());
    engine_.memory().read(part, copy);
    crc = crc32c(std::as_bytes(copy), crc);
  }
  return crc;
}

std::optional<Error> ReplicaCheck::run(std::int64_t step) {
  std::uint32_t of_all = 0;
  std::uint32_t of_shard = 0;
  for (const Held& tensor : held_) {
    std::uint32_t& sum = tensor.scope == Scope::all ? of_all : of_shard;
    sum = checksum(tensor, sum);
  }
  const std::array<std::uint64_t, 2> mine{of_all, of_shard};
  const auto size = static_cast<std::size_t>(comm_.size());
  std::vector<std::uint64_t> gathered(2 * size);
  comm_.all_gather(std::span<const std::uint64_t>(mine), std::span(gathered));
  std::vector<std::uint64_t> sums(size);
  std::vector<int> ranks(size);
  for (std::size_t rank = 0; rank < size; ++rank) sums[rank] = gathered[2 * rank];
  std::iota(ranks.begin(), ranks.end(), 0);
  if (auto error = compare(ranks, sums, Scope::all, step)) return error;
  for (std::size_t rank = 0; rank < size; ++rank) sums[rank] = gathered[2 * rank + 1];
  const Mesh mesh = data_mesh(comm_.size(), shard_.ranks);
  for (int place = 0; shard_.ranks < comm_.size() && place < shard_.ranks; ++place) {
    const std::vector<int> replicas = mesh.ranks(place, {replica_axis});
    if (auto error = compare(replicas, sums, Scope::shard, step)) return error;
  }
  last_equal_step_ = step;
  return std::nullopt;
}

std::optional<Error> ReplicaCheck::compare(const std::vector<int>& ranks,
                                           std::span<const std::uint64_t> sums, Scope scope,
                                           std::int64_t step) {
  std::vector<std::uint64_t> compared;
  compared.reserve(ranks.size());
  for (const int rank : ranks) compared.push_back(sums[static_cast<std::size_t>(rank)]);
  std::vector<int> wrong;
  for (const int place : differing_ranks(compared)) {
    wrong.push_back(ranks[static_cast<std::size_t>(place)]);
  }
  if (wrong.empty()) return std::nullopt;
  return difference(ranks, wrong, scope, step);
}

std::string ReplicaCheck::differing_tensors(const std::vector<int>& ranks, Scope scope) {
  std::vector<std::uint64_t> mine;
  mine.reserve(held_.size());
  for (const Held& tensor : held_) mine.push_back(checksum(tensor, 0));
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(comm_.size()));
  comm_.all_gather(std::span<const std::uint64_t>(mine), std::span(all));
  std::vector<std::string> names;
  for (std::size_t tensor = 0; tensor < held_.size(); ++tensor) {
    const auto sum_of = [&](int rank) {
      return all[static_cast<std::size_t>(rank) * mine.size() + tensor];
    };
    const bool is_alike =
        std::ranges::all_of(ranks, [&](int rank) { return sum_of(rank) == sum_of(ranks.front()); });
    if (!is_alike && held_[tensor].scope == scope) names.push_back(*held_[tensor].name);
  }
  return listed(names);
}

Error ReplicaCheck::difference(const std::vector<int>& ranks, const std::vector<int>& wrong,
                               Scope scope, std::int64_t step) {
  const std::string tensors = differing_tensors(ranks, scope);
  std::vector<std::string> names;
  std::vector<std::string> hosts;
  for (const int rank : wrong) {
    const std::string& host = hosts_[static_cast<std::size_t>(rank)];
    names.push_back(fmt::format("rank {} ({})", rank, host));
    hosts.push_back(host);
  }
  const bool unclear = wrong.size() == ranks.size();
  const std::string since =
      last_equal_step_ < 0 ? "since the run began" : fmt::format("since step {}", last_equal_step_);
  return {
      ExitStatus::internal,
      fmt::format("the replicas have drifted apart at step {}: {} {}, in {} (a bit flipped in "
                  "memory or on a device {}, or a rank computed differently); nothing is saved; "
                  "submit the job again, {}",
                  step, listed(names),
                  unclear ? "hold different parameters, and no value is that of most"
                          : fmt::format("hold{} other parameters than the other {}{}",
                                        wrong.size() == 1 ? "s" : "", ranks.size() - wrong.size(),
                                        scope == Scope::shard ? " that keep the same shard" : ""),
                  tensors, since,
                  unclear ? std::string("on other nodes if it happens again")
                          : fmt::format("without the node if it happens again: --exclude={}",
                                        host_list(hosts)))};
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
