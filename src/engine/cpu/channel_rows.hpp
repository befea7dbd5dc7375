#pragma once

#include "onednn.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace lockstep::cpu {

/// A (N, C, H, W) tensor as rows of up to 16 values that lie side by side: either 16 pixels of one
/// channel (nchw), or one pixel of up to 16 channels (nhwc, nChw8c, nChw16c). A unit is all rows of
/// one image that hold the same channels. The padding of a blocked layout is in its rows, so that
/// what writes them keeps it zero.
class ChannelRows final {
 public:
  static constexpr int widest = 16;

  /// Whether a layout is one of those above.
  [[nodiscard]] static bool fits(const Desc& desc);
  explicit ChannelRows(const Desc& desc);

  [[nodiscard]] std::ptrdiff_t units() const noexcept { return batch_ * blocks_; }
  /// Units of one image; the first of them hold each channel once.
  [[nodiscard]] std::ptrdiff_t image_units() const noexcept { return blocks_; }
  [[nodiscard]] std::int64_t channels() const noexcept { return channels_; }
  /// Values of one channel.
  [[nodiscard]] double count() const noexcept { return static_cast<double>(batch_ * pixels_); }
  [[nodiscard]] std::int64_t first_channel(std::ptrdiff_t unit) const noexcept {
    return unit % blocks_ * (planar_ ? 1 : lanes_);
  }
  /// Channels of a unit; 1 where its rows are pixels.
  [[nodiscard]] int unit_channels(std::ptrdiff_t unit) const noexcept {
    return planar_
               ? 1
               : static_cast<int>(std::min<std::int64_t>(lanes_, channels_ - first_channel(unit)));
  }
  /// Which of the unit's channels lane `l` of a row belongs to.
  [[nodiscard]] int channel_of_lane(int l) const noexcept { return planar_ ? 0 : l; }

  /// Of a unit's first row.
  [[nodiscard]] std::ptrdiff_t offset_of(std::ptrdiff_t unit) const noexcept {
    return unit / blocks_ * image_stride_ + unit % blocks_ * block_stride_;
  }
  /// Calls visit(offset, width) for a unit's rows; the width is a constant for those of 16, so that
  /// loops over it vectorise.
  template <typename Visit>
  void for_each_row(std::ptrdiff_t unit, Visit&& visit) const {
    std::ptrdiff_t offset = offset_of(unit);
    const int width = planar_ ? widest : padded_ ? static_cast<int>(lanes_) : unit_channels(unit);
    const std::ptrdiff_t rows = planar_ ? pixels_ / widest : pixels_;
    const std::ptrdiff_t stride = planar_ ? widest : pixel_stride_;
    if (width == widest) {
      for (std::ptrdiff_t row = 0; row < rows; ++row, offset += stride) {
        visit(offset, std::integral_constant<int, widest>());
      }
    } else {
      for (std::ptrdiff_t row = 0; row < rows; ++row, offset += stride) visit(offset, width);
    }
    if (planar_ && pixels_ % widest != 0) visit(offset, static_cast<int>(pixels_ % widest));
  }

 private:
  std::int64_t batch_;
  std::int64_t channels_;
  std::int64_t pixels_;
  bool planar_ = false;
  bool padded_ = false;     ///< the last block is as wide as the others
  std::int64_t lanes_ = 1;  ///< channels of a block, where not planar
  std::int64_t blocks_ = 1;
  std::ptrdiff_t image_stride_ = 0;
  std::ptrdiff_t block_stride_ = 0;
  std::ptrdiff_t pixel_stride_ = 1;
};

}  // namespace lockstep::cpu
