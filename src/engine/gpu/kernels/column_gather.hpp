#pragma once

#include "lockstep/core/host_device.hpp"

#include <cstdint>

namespace lockstep::gpu {

/// Images of few channels, gathered for a convolution of stride 2. Each image has a border of
/// zeros. Gathered pixel (h, q) holds rows 2h and 2h + 1: of each row the 2 * pairs columns from 2q
/// on, with four channels each. A kernel of `pairs` rows and one column over gathered pixels
/// computes the convolution.
struct ColumnGather {
  static constexpr std::int64_t channels = 4;

  std::int64_t batch = 0;
  std::int64_t height = 0;  ///< of the images
  std::int64_t width = 0;
  std::int64_t padded = 0;           ///< channels of a pixel as stored: 16 bytes
  std::int64_t border = 0;           ///< rows and columns of zeros before an image
  std::int64_t pairs = 0;            ///< of rows, and of columns, that the kernel covers
  std::int64_t gathered_height = 0;  ///< output rows + pairs - 1
  std::int64_t gathered_width = 0;   ///< output columns
  std::int64_t kernel = 0;
  std::int64_t kernel_begin = 0;  ///< zero rows and columns before the kernel in the pairs: 0 or 1
  std::int64_t filters = 0;       ///< as stored

  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t columns() const { return 2 * pairs; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int64_t gathered_channels() const {
    return 2 * columns() * channels;
  }
  [[nodiscard]] std::int64_t gathered_values() const {
    return batch * gathered_height * gathered_width * gathered_channels();
  }
  /// Filters are (filters, kernel, kernel, padded), gathered (filters, pairs, 1, channels).
  [[nodiscard]] std::int64_t filter_values() const { return filters * kernel * kernel * padded; }
  [[nodiscard]] std::int64_t gathered_filter_values() const {
    return filters * pairs * gathered_channels();
  }
};

}  // namespace lockstep::gpu
