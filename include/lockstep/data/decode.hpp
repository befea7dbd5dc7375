#pragma once

#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Pixels of one image: uint8 (H, W, C). Buffers are reused between calls.
struct Image {
  ImageShape shape;
  std::vector<std::byte> pixels;
};

/// More than this many pixels (height times width) are refused before memory is taken.
inline constexpr std::int64_t max_image_pixels = std::int64_t{1} << 26;

/// Decodes a JPEG file into `channels` = 1 (grey) or 3 (RGB) channels; grey becomes RGB and CMYK
/// too. Error(bad_input) where it is damaged, truncated or too large; the text does not name the
/// sample, the caller does.
void decode_jpeg(std::span<const std::byte> file, std::int64_t channels, Image& image);

/// The same for a PNG file. Transparency is laid over black.
void decode_png(std::span<const std::byte> file, std::int64_t channels, Image& image);

}  // namespace lockstep
