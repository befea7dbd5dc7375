#pragma once

#include "lockstep/data/decode.hpp"

#include <cstdint>

namespace lockstep {

[[nodiscard]] inline std::uint8_t* values_of(Image& image) noexcept {
  return reinterpret_cast<std::uint8_t*>(image.pixels.data());
}
[[nodiscard]] inline const std::uint8_t* values_of(const Image& image) noexcept {
  return reinterpret_cast<const std::uint8_t*>(image.pixels.data());
}

/// Gives `result` the shape of `image`; allocates only if no earlier image was as large.
inline void take_shape(const Image& image, Image& result) {
  result.shape = image.shape;
  result.pixels.resize(image.pixels.size());
}

}  // namespace lockstep
