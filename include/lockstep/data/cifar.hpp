#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Record layout of CIFAR's binary version: label bytes, then 32 x 32 pixels, planar (CHW).
struct CifarLayout {
  std::int64_t label_bytes = 1;  ///< 2 in CIFAR-100: coarse, then fine
  std::int64_t classes = 10;     ///< of the last label byte
};
inline constexpr std::int64_t cifar_side = 32;
inline constexpr std::int64_t cifar_channels = 3;

struct CifarBatch {
  std::vector<std::uint8_t> labels;
  std::vector<std::byte> images;  ///< N x 32 x 32 x 3
};

/// Error(bad_input) if the size is not a whole number of records or a label is out of range.
[[nodiscard]] CifarBatch parse_cifar(std::span<const std::byte> bytes, const CifarLayout& layout,
                                     const std::string& name);

}  // namespace lockstep
