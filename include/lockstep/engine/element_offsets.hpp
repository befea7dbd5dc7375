#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace lockstep {

/// Offset of each element of a tensor whose offsets are a sum of one term per axis: strided and
/// padded layouts, and blocked ones, where each block splits only one axis.
struct ElementOffsets {
  /// By axis, then by index.
  std::array<std::vector<std::size_t>, 5> terms{{{0}, {0}, {0}, {0}, {0}}};

  /// Calls visit(plain index, offset) for each element in row-major order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    std::size_t plain_index = 0;
    for (const std::size_t a : terms[0]) {
      for (const std::size_t b : terms[1]) {
        for (const std::size_t c : terms[2]) {
          for (const std::size_t d : terms[3]) {
            for (const std::size_t e : terms[4]) visit(plain_index++, a + b + c + d + e);
          }
        }
      }
    }
  }
  [[nodiscard]] std::size_t elements() const noexcept {
    return terms[0].size() * terms[1].size() * terms[2].size() * terms[3].size() * terms[4].size();
  }
  friend bool operator==(const ElementOffsets&, const ElementOffsets&) = default;
};

}  // namespace lockstep
