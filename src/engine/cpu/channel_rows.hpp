#pragma once

#include "onednn.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

/// A (N, C, H, W) tensor as rows. A row holds adjacent channels of one pixel: all of them (nhwc) or
/// one block's (nChw16c, nChw8c). A unit is a contiguous range of rows with the same channels. Rows
/// include the padding of a blocked layout, so writers must keep it zero.
class ChannelRows final {
 public:
  /// Rows that share one mask byte per lane.
  static constexpr std::int64_t rows_per_byte = 8;

  /// Whether the layout is nhwc, nChw16c or nChw8c.
  [[nodiscard]] static bool fits(const Desc& desc);
  /// Requires fits(desc).
  explicit ChannelRows(const Desc& desc);

  struct Unit {
    std::ptrdiff_t offset;  ///< of its first value in the tensor
    std::ptrdiff_t mask;    ///< of its first byte in a mask
    std::ptrdiff_t first_channel;
    std::int64_t first_row;  ///< of all pixels of the batch
    std::int64_t rows;
    int width;     ///< values per row
    int channels;  ///< values per row without padding
  };
  [[nodiscard]] std::ptrdiff_t units() const noexcept { return units_; }
  [[nodiscard]] Unit unit(std::ptrdiff_t index) const noexcept {
    const std::ptrdiff_t first_channel = index % blocks_ * width_;
    const std::int64_t first_row = index / blocks_ * rows_;
    return {
        .offset = index * rows_ * width_,
        .mask = index * mask_rows() * width_,
        .first_channel = first_channel,
        .first_row = first_row,
        .rows = std::min(rows_, all_rows_ - first_row),
        .width = width_,
        .channels = static_cast<int>(std::min<std::int64_t>(width_, channels_ - first_channel))};
  }

  [[nodiscard]] std::int64_t channels() const noexcept { return channels_; }
  /// Includes the padding of the last block.
  [[nodiscard]] std::int64_t padded_channels() const noexcept { return blocks_ * width_; }
  /// Offset of a channel's first value.
  [[nodiscard]] std::ptrdiff_t first_of(std::int64_t channel) const noexcept {
    return channel / width_ * rows_ * width_ + channel % width_;
  }
  /// Includes padding.
  [[nodiscard]] std::ptrdiff_t values() const noexcept { return all_rows_ * padded_channels(); }
  /// Rows per channel: the pixels of the batch.
  [[nodiscard]] std::int64_t all_rows() const noexcept { return all_rows_; }
  /// Number of values per channel.
  [[nodiscard]] double count() const noexcept { return count_; }
  [[nodiscard]] int width() const noexcept { return width_; }
  /// Size of a mask with one bit per value: one byte per lane of eight rows.
  [[nodiscard]] std::int64_t mask_bytes() const noexcept { return units_ * mask_rows() * width_; }

 private:
  [[nodiscard]] std::int64_t mask_rows() const noexcept {
    return (rows_ + rows_per_byte - 1) / rows_per_byte;
  }

  std::int64_t channels_;
  int width_;
  std::int64_t blocks_;    ///< rows that hold all channels of one pixel
  std::int64_t rows_;      ///< per unit; the last unit may have fewer
  std::int64_t all_rows_;  ///< rows per channel
  std::int64_t units_;
  double count_;
};

}  // namespace lockstep::cpu
