#pragma once

#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace lockstep {

/// One parameter's place in an arena. `size` counts the engine's padding within the tensor.
struct ArenaView {
  ParameterId parameter;
  ParameterKind kind;
  std::size_t offset;
  std::size_t size;
  [[nodiscard]] std::size_t end() const noexcept { return offset + size; }
  /// Its values in an arena.
  template <typename T>
  [[nodiscard]] std::span<T> in(std::span<T> arena) const {
    return arena.subspan(offset, size);
  }
  friend bool operator==(const ArenaView&, const ArenaView&) = default;
};

/// A run of views that is sharded and gathered as one.
struct ArenaUnit {
  std::size_t begin;
  std::size_t end;
  bool in_fp32 = false;  ///< used in fp32, also where weights are used in 16 bits
  [[nodiscard]] std::size_t size() const noexcept { return end - begin; }
  /// Its values in an arena.
  template <typename T>
  [[nodiscard]] std::span<T> in(std::span<T> arena) const {
    return arena.subspan(begin, size());
  }
  friend bool operator==(const ArenaUnit&, const ArenaUnit&) = default;
};

/// Which parameters make a unit together, and of what each unit's size is a multiple.
struct UnitRule {
  std::vector<int> unit_of;  ///< by parameter; empty: all are one
  std::size_t multiple = 1;
  bool vectors_apart = false;  ///< biases and norms make one unit, the last, in_fp32
};

/// The order and extent of all parameters in the flat arena, ascending by offset; each view begins
/// on a multiple of arena_alignment, gaps are zero in every arena and stay so.
struct ArenaLayout {
  std::vector<ArenaView> views;
  std::vector<ArenaUnit> units = {};  ///< they cover the arena, in order; none: it is not sharded

  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] const ArenaView& view_of(ParameterId id) const;
  friend bool operator==(const ArenaLayout&, const ArenaLayout&) = default;
};

inline constexpr std::size_t arena_alignment = 16;  ///< values: 64 bytes

/// Lays parameters out in the order in which backward finishes their gradients; `size_of` counts
/// padding. Where that order leaves a unit and comes back, it becomes two; vectors that are apart
/// lie behind all else.
[[nodiscard]] ArenaLayout lay_out(const Graph& graph, const std::vector<ParameterId>& ready,
                                  const std::function<std::size_t(ParameterId)>& size_of,
                                  const UnitRule& rule = {});

/// By parameter: the end of the arena's range that is final once its gradient and all before it in
/// `ready` are.
[[nodiscard]] std::vector<std::size_t> filled_after_each(const ArenaLayout& layout,
                                                         const std::vector<ParameterId>& ready);

}  // namespace lockstep
