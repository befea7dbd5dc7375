#pragma once

#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// One parameter's place in an arena. `size` counts the engine's padding within the tensor.
struct ArenaView {
  ParameterId parameter;
  ParameterKind kind;
  std::size_t offset;
  std::size_t size;
  [[nodiscard]] std::size_t end() const noexcept { return offset + size; }
  friend bool operator==(const ArenaView&, const ArenaView&) = default;
};

/// The order and extent of all parameters in the flat arena, ascending by offset; each view begins
/// on a multiple of 16 values (64 bytes), gaps are zero in every arena and stay so.
struct ArenaLayout {
  std::vector<ArenaView> views;
  [[nodiscard]] std::size_t size() const noexcept {
    return views.empty() ? 0 : (views.back().end() + 15) / 16 * 16;
  }
  friend bool operator==(const ArenaLayout&, const ArenaLayout&) = default;
};

}  // namespace lockstep
