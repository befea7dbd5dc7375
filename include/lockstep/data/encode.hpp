#pragma once

#include "lockstep/data/decode.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// FFCV's value for ImageNet.
inline constexpr std::int64_t default_jpeg_quality = 90;

/// Encodes an RGB image as a baseline JPEG file with 4:2:0 chroma subsampling, into `file`. The
/// same pixels give the same bytes. Error(bad_input) if a side is longer than JPEG allows.
void encode_jpeg(const Image& image, std::int64_t quality, std::vector<std::byte>& file);

/// Number of colour components that a JPEG file stores: 1 grey, 3 colour, 4 CMYK or YCCK; 0 if
/// there is no frame header.
[[nodiscard]] std::int64_t jpeg_components(std::span<const std::byte> file) noexcept;

}  // namespace lockstep
