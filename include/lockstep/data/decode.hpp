#pragma once

#include "lockstep/core/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Pixels of one image, uint8 (H, W, C). Decoders reuse the buffer.
struct Image {
  ImageShape shape;
  std::vector<std::byte> pixels;
};

/// Images with more pixels (height times width) are rejected before memory is allocated.
inline constexpr std::int64_t max_image_pixels = std::int64_t{1} << 26;

/// Decodes a JPEG file to `channels` = 1 (grey) or 3 (RGB) channels, converting grey, RGB and CMYK
/// as needed. Error(bad_input) if the file is damaged, truncated or too large; its text does not
/// name the sample, so the caller adds the name.
void decode_jpeg(std::span<const std::byte> file, std::int64_t channels, Image& image);

/// The same for a PNG file. Transparent pixels are blended with black.
void decode_png(std::span<const std::byte> file, std::int64_t channels, Image& image);

}  // namespace lockstep
