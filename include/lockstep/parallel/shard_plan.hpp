#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// The unit of each parameter of the graph. A unit is a block that the model marks, the rest of its
/// stage, or a layer outside both; a stage; or consecutive layers of at least `unit.smallest`
/// values. A norm outside blocks joins the layer before it. Pure.
[[nodiscard]] std::vector<int> plan_units(const Graph& graph, const ShardUnit& unit);

/// Merges adjacent units, last first (backward's order), up to `most` parameters. Pure.
[[nodiscard]] std::vector<int> merge_units(std::vector<int> unit_of, const Graph& graph,
                                           std::int64_t most);

/// How an arena is sharded over `ranks`: rank r keeps the r-th of `ranks` equal parts of each unit,
/// in a separate arena. Unit sizes are multiples of `ranks`. Pure.
class ShardPlan final {
 public:
  ShardPlan(ArenaLayout unsharded, int rank, int ranks);

  [[nodiscard]] const ArenaLayout& unsharded() const noexcept { return unsharded_; }
  /// This rank's shards: one view for each view of unsharded(), in the same order, some of them
  /// empty.
  [[nodiscard]] const ArenaLayout& local() const noexcept { return local_; }
  [[nodiscard]] std::size_t units() const noexcept { return unsharded_.units.size(); }
  /// Offset in unsharded() of this rank's shard of a unit.
  [[nodiscard]] std::size_t begin_in_unsharded(std::size_t unit) const {
    return unsharded_.units[unit].begin +
           static_cast<std::size_t>(rank_) * local_.units[unit].size();
  }

 private:
  ArenaLayout unsharded_;
  ArenaLayout local_;
  int rank_;
};

}  // namespace lockstep
