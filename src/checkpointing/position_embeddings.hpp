#pragma once

#include "lockstep/core/shape.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Patches of an image.
struct PositionGrid {
  std::int64_t height = 0;
  std::int64_t width = 0;
};

/// Of embeddings shaped (1, 1 + S, E) for a square image; empty if S is no square.
[[nodiscard]] PositionGrid square_grid(const Shape& shape);

/// Embeddings of a class token and `from` patches, shaped (1, 1 + height * width, E), for `to`
/// patches: bicubic interpolation between aligned corners, as torchvision's
/// interpolate_embeddings() does. The class token's stays.
[[nodiscard]] std::vector<float> resize_positions(std::span<const float> values, PositionGrid from,
                                                  PositionGrid to);

}  // namespace lockstep
