#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// The unit of each parameter of the graph. A unit is a residual block (or a layer outside blocks),
/// a stage, or consecutive layers of at least `unit.smallest` values; norms join their layer. Pure.
[[nodiscard]] std::vector<int> plan_units(const Graph& graph, const ShardUnit& unit);

/// Merges adjacent units, last first (backward's order), up to `most` parameters. Pure.
[[nodiscard]] std::vector<int> merge_units(std::vector<int> unit_of, const Graph& graph,
                                           std::int64_t most);

/// How an arena is sharded over `ranks`: rank r keeps the r-th of `ranks` equal parts of each unit,
/// in a separate arena. Unit sizes are multiples of `ranks`. Pure.
class ShardPlan final {
 public:
  ShardPlan(ArenaLayout whole, int rank, int ranks);

  [[nodiscard]] const ArenaLayout& whole() const noexcept { return whole_; }
  /// This rank's shards: one view for each view of whole(), in the same order, some of them empty.
  [[nodiscard]] const ArenaLayout& own() const noexcept { return own_; }
  [[nodiscard]] std::size_t units() const noexcept { return whole_.units.size(); }
  /// Offset in whole() of this rank's shard of a unit.
  [[nodiscard]] std::size_t begin_in_whole(std::size_t unit) const {
    return whole_.units[unit].begin + static_cast<std::size_t>(rank_) * own_.units[unit].size();
  }

 private:
  ArenaLayout whole_;
  ArenaLayout own_;
  int rank_;
};

}  // namespace lockstep
