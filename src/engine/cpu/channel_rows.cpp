#include "channel_rows.hpp"

#include <cassert>

namespace lockstep::cpu {
namespace {

/// Whether the pixels of an image, and the images, follow each other at `pixel` values' distance.
bool pixels_are_dense(const dnnl_memory_desc_t& data, std::int64_t pixel, std::int64_t image) {
  const auto& strides = data.format_desc.blocking.strides;
  const auto& dims = data.dims;
  return (dims[3] == 1 || strides[3] == pixel) && (dims[2] == 1 || strides[2] == pixel * dims[3]) &&
         (dims[0] == 1 || strides[0] == image);
}

bool is_blocked(const dnnl_memory_desc_t& data) {
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  if (blocking.inner_nblks != 1 || blocking.inner_idxs[0] != 1) return false;
  const dnnl_dim_t lanes = blocking.inner_blks[0];
  const dnnl_dim_t block = data.dims[2] * data.dims[3] * lanes;
  return (data.padded_dims[1] == lanes || blocking.strides[1] == block) &&
         pixels_are_dense(data, lanes, data.padded_dims[1] / lanes * block);
}

bool is_channels_last(const dnnl_memory_desc_t& data) {
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  const dnnl_dim_t channels = data.dims[1];
  return blocking.inner_nblks == 0 && (channels == 1 || blocking.strides[1] == 1) &&
         pixels_are_dense(data, channels, data.dims[2] * data.dims[3] * channels);
}

/// Of a unit where all rows follow each other.
constexpr std::int64_t rows_of_a_unit = 64;

}  // namespace

bool ChannelRows::fits(const Desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  return data.format_kind == dnnl_blocked && data.ndims == 4 && data.offset0 == 0 &&
         (is_blocked(data) || is_channels_last(data));
}

ChannelRows::ChannelRows(const Desc& desc) : channels_(desc.data.dims[1]) {
  assert(fits(desc));
  const dnnl_memory_desc_t& data = desc.data;
  const std::int64_t pixels = data.dims[2] * data.dims[3];
  const std::int64_t batch = data.dims[0];
  all_rows_ = batch * pixels;
  if (is_channels_last(data)) {
    width_ = static_cast<int>(channels_);
    blocks_ = 1;
    rows_ = rows_of_a_unit;
    units_ = (all_rows_ + rows_ - 1) / rows_;
  } else {
    width_ = static_cast<int>(data.format_desc.blocking.inner_blks[0]);
    blocks_ = data.padded_dims[1] / width_;
    rows_ = pixels;
    units_ = batch * blocks_;
  }
  count_ = static_cast<double>(batch * pixels);
}

}  // namespace lockstep::cpu
