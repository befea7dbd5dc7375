#pragma once

#include <cstddef>

namespace lockstep {

/// The place of an id in a vector.
[[nodiscard]] constexpr std::size_t at(int id) noexcept {
  return static_cast<std::size_t>(id);
}

}  // namespace lockstep
