#pragma once

#include "lockstep/graph/graph.hpp"
#include "lockstep/step/step_graph.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace lockstep {

/// One parameter's range in an arena. `size` includes the engine's padding within the tensor.
struct ArenaView {
  ParameterId parameter;
  ParameterKind kind;
  std::size_t offset;
  std::size_t size;
  double lr_scale = 1;  ///< Parameter::lr_scale
  [[nodiscard]] std::size_t end() const noexcept { return offset + size; }
  /// Its values in an arena.
  template <typename T>
  [[nodiscard]] std::span<T> in(std::span<T> arena) const {
    return arena.subspan(offset, size);
  }
  friend bool operator==(const ArenaView&, const ArenaView&) = default;
};

/// Consecutive views that are sharded and gathered together.
struct ArenaUnit {
  std::size_t begin;
  std::size_t end;
  bool in_fp32 = false;  ///< used in fp32 even if the other weights are used in 16 bits
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  /// Its values in an arena.
  template <typename T>
  [[nodiscard]] std::span<T> in(std::span<T> arena) const {
    return arena.subspan(begin, size());
  }
  friend bool operator==(const ArenaUnit&, const ArenaUnit&) = default;
};

/// How parameters are grouped into units. Unit sizes are multiples of `multiple`.
struct UnitRule {
  std::vector<int> unit_of;  ///< by parameter; empty: one unit of all parameters
  std::size_t multiple = 1;
  bool vectors_apart = false;  ///< all but weights form the last unit, with in_fp32 set
};

/// The order and size of all parameters in the flat arena, ascending by offset. Each view begins on
/// a multiple of arena_alignment. Gaps are zero in every arena and remain zero.
struct ArenaLayout {
  std::vector<ArenaView> views;
  std::vector<ArenaUnit> units = {};  ///< cover the arena, in order; empty: not sharded

  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] bool is_sharded() const noexcept { return !units.empty(); }
  [[nodiscard]] const ArenaView& view_of(ParameterId id) const;
  friend bool operator==(const ArenaLayout&, const ArenaLayout&) = default;
};

inline constexpr std::size_t arena_alignment = 16;  ///< in values; 64 bytes

/// Lays parameters out in the order in which backward finishes their gradients; `size_of` includes
/// padding. If that order leaves a unit and returns to it, the unit becomes two. With
/// vectors_apart, the vectors come last.
[[nodiscard]] ArenaLayout lay_out(const Graph& graph, const std::vector<ParameterId>& ready,
                                  const std::function<std::size_t(ParameterId)>& size_of,
                                  const UnitRule& rule = {});

/// The layout without an engine's padding: for predictions without an engine.
[[nodiscard]] ArenaLayout lay_out_without_padding(const Graph& graph, const UnitRule& rule);

/// By parameter: the end of the arena prefix that is final once the gradients of this parameter and
/// of all before it in `ready` are final.
[[nodiscard]] std::vector<std::size_t> filled_after_each(const ArenaLayout& layout,
                                                         const std::vector<ParameterId>& ready);

/// A layout's units for shard(), which no collective touches yet.
[[nodiscard]] StepUnits step_units(const ArenaLayout& layout, const Graph& graph);

}  // namespace lockstep
