#include "lockstep/comm/checked_communicator.hpp"

#include "lockstep/core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 8> type_names{"f32", "f64", "i32",  "i64",
                                                     "u8",  "u64", "bf16", "f16"};
constexpr std::array<std::string_view, 3> op_names{"sum", "min", "max"};

bool reduces(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::started_all_reduce ||
         kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::started_reduce_scatter;
}
bool has_root(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::broadcast || kind == CollectiveKind::gather ||
         kind == CollectiveKind::scatter;
}

}  // namespace

/// A call as it is sent.
struct CollectiveComparison::Record {
  std::int64_t number = 0;
  std::int64_t step = 0;
  std::int64_t kind = 0;
  std::int64_t count = 0;
  std::int64_t type = 0;
  std::int64_t op = 0;
  std::int64_t root = 0;
  std::int64_t communicator = 0;
  friend bool operator==(const Record&, const Record&) = default;
};

CollectiveComparison::CollectiveComparison(std::unique_ptr<Communicator> own,
                                           std::function<std::int64_t()> step,
                                           std::vector<std::string> hosts)
    : all_{.comm = std::move(own), .ranks = {}}, step_(std::move(step)), hosts_(std::move(hosts)) {
  all_.ranks.resize(static_cast<std::size_t>(all_.comm->size()));
  std::iota(all_.ranks.begin(), all_.ranks.end(), 0);
}

void CollectiveComparison::compare_in_groups(std::vector<int> ranks) {
  auto group = all_.comm->split(ranks.front(), all_.comm->rank());
  group_ = {.comm = std::move(group), .ranks = std::move(ranks), .calls = all_.calls};
}

int CollectiveComparison::add(const std::string& name, Callers callers) {
  names_.push_back(name);
  callers_.push_back(callers);
  return static_cast<int>(names_.size()) - 1;
}

void CollectiveComparison::compare(const CollectiveCall& call, int communicator) {
  if (group_) compare(*group_, call, communicator);
  const bool by_group = callers_[static_cast<std::size_t>(communicator)] == Callers::group;
  if (!group_ || !by_group) compare(all_, call, communicator);
}

void CollectiveComparison::compare(Circle& circle, const CollectiveCall& call, int communicator) {
  static_assert(sizeof(Record) % sizeof(std::int64_t) == 0);
  constexpr std::size_t words = sizeof(Record) / sizeof(std::int64_t);
  const Record mine{.number = ++circle.calls,
                    .step = step_ ? step_() : 0,
                    .kind = static_cast<std::int64_t>(call.kind),
                    .count = static_cast<std::int64_t>(call.count),
                    .type = static_cast<std::int64_t>(call.type),
                    .op = static_cast<std::int64_t>(call.op),
                    .root = call.root,
                    .communicator = communicator};
  std::vector<Record> all(circle.ranks.size());
  circle.comm->all_gather_buffer(
      {.data = &mine, .count = words, .type = ElementType::i64},
      {.data = all.data(), .count = words * all.size(), .type = ElementType::i64});
  // The most frequent record counts as right; on a tie, that of the lowest rank.
  std::size_t right = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto alike = std::count(all.begin(), all.end(), all[rank]);
    if (alike > most) {
      most = alike;
      right = rank;
    }
  }
  if (most == static_cast<std::ptrdiff_t>(all.size())) return;
  std::size_t wrong = 0;
  while (all[wrong] == all[right]) ++wrong;
  fail(ExitStatus::internal,
       "{} calls {}, but {} {} (collectives must be the same on all ranks; {} "
       "of {} ranks differ from most); look at what rank {} did before it",
       name(circle.ranks[wrong]), describe(all[wrong]), name(circle.ranks[right]),
       describe(all[right]), static_cast<std::ptrdiff_t>(all.size()) - most, all.size(),
       circle.ranks[wrong]);
}

std::string CollectiveComparison::name(int rank) const {
  return fmt::format("rank {} ({})", rank, hosts_[static_cast<std::size_t>(rank)]);
}

std::string CollectiveComparison::describe(const Record& record) const {
  const auto kind = static_cast<CollectiveKind>(record.kind);
  std::string text(to_string(kind));
  if (reduces(kind)) text += fmt::format(" ({})", op_names.at(static_cast<std::size_t>(record.op)));
  if (kind != CollectiveKind::barrier && kind != CollectiveKind::split) {
    text += fmt::format(" of {} {}", record.count,
                        type_names.at(static_cast<std::size_t>(record.type)));
  }
  if (has_root(kind)) text += fmt::format(" from or to rank {}", record.root);
  return fmt::format("{} as collective {} in step {}, of {} communicator", text, record.number,
                     record.step, names_.at(static_cast<std::size_t>(record.communicator)));
}

}  // namespace lockstep
