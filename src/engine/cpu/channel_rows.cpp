#include "channel_rows.hpp"

#include <cassert>

namespace lockstep::cpu {
namespace {

/// Whether adjacent pixels are `pixel` values apart, and adjacent images `image` values.
bool pixels_are_dense(const BlockedLayout& layout, std::int64_t pixel, std::int64_t image) {
  const Dims& dims = layout.dims;
  const Dims& strides = layout.strides;
  return (dims[3] == 1 || strides[3] == pixel) && (dims[2] == 1 || strides[2] == pixel * dims[3]) &&
         (dims[0] == 1 || strides[0] == image);
}

bool is_blocked_by_channels(const BlockedLayout& layout) {
  if (layout.inner_blocks.size() != 1 || layout.inner_axes[0] != 1) return false;
  const std::int64_t lanes = layout.inner_blocks[0];
  const std::int64_t block = layout.dims[2] * layout.dims[3] * lanes;
  return (layout.padded_dims[1] == lanes || layout.strides[1] == block) &&
         pixels_are_dense(layout, lanes, layout.padded_dims[1] / lanes * block);
}

bool is_channels_last(const BlockedLayout& layout) {
  const std::int64_t channels = layout.dims[1];
  return layout.inner_blocks.empty() && (channels == 1 || layout.strides[1] == 1) &&
         pixels_are_dense(layout, channels, layout.dims[2] * layout.dims[3] * channels);
}

/// Rows per unit if all rows are contiguous.
constexpr std::int64_t rows_per_unit = 64;

}  // namespace

bool ChannelRows::fits(const Desc& desc) {
  if (!is_blocked(desc)) return false;
  const BlockedLayout layout = layout_of(desc);
  return layout.dims.size() == 4 && layout.offset == 0 &&
         (is_blocked_by_channels(layout) || is_channels_last(layout));
}

ChannelRows::ChannelRows(const Desc& desc) : channels_(dims_of(desc)[1]) {
  assert(fits(desc));
  const BlockedLayout layout = layout_of(desc);
  const std::int64_t pixels = layout.dims[2] * layout.dims[3];
  const std::int64_t batch = layout.dims[0];
  all_rows_ = batch * pixels;
  if (is_channels_last(layout)) {
    width_ = static_cast<int>(channels_);
    blocks_ = 1;
    rows_ = rows_per_unit;
    units_ = (all_rows_ + rows_ - 1) / rows_;
  } else {
    width_ = static_cast<int>(layout.inner_blocks[0]);
    blocks_ = layout.padded_dims[1] / width_;
    rows_ = pixels;
    units_ = batch * blocks_;
  }
  count_ = static_cast<double>(batch * pixels);
}

}  // namespace lockstep::cpu
