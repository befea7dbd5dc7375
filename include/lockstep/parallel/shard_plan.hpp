#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// By parameter of the graph, the unit it belongs to: a residual block with what stands alone
/// beside it, a stage, or consecutive layers of at least so many values. Norms belong to their
/// layer. Pure.
[[nodiscard]] std::vector<int> plan_units(const Graph& graph, const ShardUnit& unit);

/// Makes one of consecutive units as long as they have no more than so many parameters together,
/// from the last on, as backward goes. Pure.
[[nodiscard]] std::vector<int> merge_units(std::vector<int> unit_of, const Graph& graph,
                                           std::int64_t most);

/// How an arena is sharded over `ranks`: of each unit, which divides by them, rank r keeps the r-th
/// part, in an arena of its own. Pure.
class ShardPlan final {
 public:
  ShardPlan(ArenaLayout whole, int rank, int ranks);

  [[nodiscard]] const ArenaLayout& whole() const noexcept { return whole_; }
  /// What this rank keeps: as many views as the whole has, in its order, some of them empty.
  [[nodiscard]] const ArenaLayout& own() const noexcept { return own_; }
  [[nodiscard]] std::size_t units() const noexcept { return whole_.units.size(); }
  /// Where this rank's part of a unit begins in the whole.
  [[nodiscard]] std::size_t begin_in_whole(std::size_t unit) const {
    return whole_.units[unit].begin + static_cast<std::size_t>(rank_) * own_.units[unit].size();
  }

 private:
  ArenaLayout whole_;
  ArenaLayout own_;
  int rank_;
};

}  // namespace lockstep
