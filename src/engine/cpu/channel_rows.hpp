#pragma once

#include "onednn.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

/// A (N, C, H, W) tensor as rows: the values of neighbouring channels at one pixel, all of them
/// (nhwc) or a block's (nChw16c, nChw8c). A unit is rows that follow each other without a gap and
/// hold the same channels. The padding of a blocked layout is in its rows, so that what writes them
/// keeps it zero.
class ChannelRows final {
 public:
  /// Rows that share a byte of each lane in a mask of bits.
  static constexpr std::int64_t rows_of_a_byte = 8;

  /// Whether a layout is one of those above.
  [[nodiscard]] static bool fits(const Desc& desc);
  /// Where `fits`.
  explicit ChannelRows(const Desc& desc);

  struct Unit {
    std::ptrdiff_t offset;  ///< of its first value in the tensor
    std::ptrdiff_t mask;    ///< of its first byte in a mask
    std::ptrdiff_t first_channel;
    std::int64_t rows;
    int width;     ///< values of a row
    int channels;  ///< values of a row without padding
  };
  [[nodiscard]] std::ptrdiff_t units() const noexcept { return units_; }
  [[nodiscard]] Unit unit(std::ptrdiff_t index) const noexcept {
    const std::ptrdiff_t first_channel = index % blocks_ * width_;
    const std::int64_t first_row = blocks_ == 1 ? index * rows_ : 0;
    return {
        .offset = index * rows_ * width_,
        .mask = index * mask_rows() * width_,
        .first_channel = first_channel,
        .rows = std::min(rows_, all_rows_ - first_row),
        .width = width_,
        .channels = static_cast<int>(std::min<std::int64_t>(width_, channels_ - first_channel))};
  }

  [[nodiscard]] std::int64_t channels() const noexcept { return channels_; }
  /// With the padding of the last block.
  [[nodiscard]] std::int64_t padded_channels() const noexcept { return blocks_ * width_; }
  /// Where the first value of a channel is.
  [[nodiscard]] std::ptrdiff_t first_of(std::int64_t channel) const noexcept {
    return channel / width_ * rows_ * width_ + channel % width_;
  }
  /// With padding.
  [[nodiscard]] std::ptrdiff_t values() const noexcept { return all_rows_ * padded_channels(); }
  /// Values of one channel.
  [[nodiscard]] double count() const noexcept { return count_; }
  [[nodiscard]] int width() const noexcept { return width_; }
  /// Of a bit for each value, a byte for a lane of eight rows.
  [[nodiscard]] std::int64_t mask_bytes() const noexcept { return units_ * mask_rows() * width_; }

 private:
  [[nodiscard]] std::int64_t mask_rows() const noexcept {
    return (rows_ + rows_of_a_byte - 1) / rows_of_a_byte;
  }

  std::int64_t channels_;
  int width_;
  std::int64_t blocks_;    ///< units that hold the channels of one pixel
  std::int64_t rows_;      ///< of a unit; of the last perhaps fewer
  std::int64_t all_rows_;  ///< that hold a channel
  std::int64_t units_;
  double count_;
};

}  // namespace lockstep::cpu
