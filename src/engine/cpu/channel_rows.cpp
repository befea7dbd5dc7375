#include "channel_rows.hpp"

#include <cassert>

namespace lockstep::cpu {
namespace {

/// Whether pixels lie at equal distances.
bool pixels_are_even(const dnnl_memory_desc_t& data) {
  const auto& strides = data.format_desc.blocking.strides;
  return data.dims[2] == 1 || data.dims[3] == 1 || strides[2] == data.dims[3] * strides[3];
}

/// Between neighbouring pixels.
std::ptrdiff_t pixel_stride(const dnnl_memory_desc_t& data) {
  const auto& strides = data.format_desc.blocking.strides;
  return data.dims[3] > 1 ? strides[3] : strides[2];
}

bool is_blocked(const dnnl_memory_desc_t& data) {
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  return blocking.inner_nblks == 1 && blocking.inner_idxs[0] == 1 &&
         blocking.inner_blks[0] <= ChannelRows::widest;
}

bool is_plain(const dnnl_memory_desc_t& data) {
  return data.format_desc.blocking.inner_nblks == 0;
}

bool is_channels_last(const dnnl_memory_desc_t& data) {
  return is_plain(data) && data.format_desc.blocking.strides[1] == 1 && data.dims[1] > 1 &&
         (data.dims[2] * data.dims[3] > 1);
}

bool is_planar(const dnnl_memory_desc_t& data) {
  const bool one_pixel = data.dims[2] * data.dims[3] == 1;
  return is_plain(data) && (one_pixel || pixel_stride(data) == 1);
}

}  // namespace

bool ChannelRows::fits(const Desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  return data.format_kind == dnnl_blocked && data.ndims == 4 && data.offset0 == 0 &&
         pixels_are_even(data) && (is_blocked(data) || is_channels_last(data) || is_planar(data));
}

ChannelRows::ChannelRows(const Desc& desc)
    : batch_(desc.data.dims[0]),
      channels_(desc.data.dims[1]),
      pixels_(desc.data.dims[2] * desc.data.dims[3]) {
  assert(fits(desc));
  const dnnl_memory_desc_t& data = desc.data;
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  image_stride_ = blocking.strides[0];
  pixel_stride_ = pixels_ > 1 ? pixel_stride(data) : 1;
  if (is_blocked(data)) {
    padded_ = true;
    lanes_ = blocking.inner_blks[0];
    block_stride_ = blocking.strides[1];
  } else if (is_channels_last(data)) {
    lanes_ = widest;
    block_stride_ = widest;
  } else {
    planar_ = true;
    block_stride_ = blocking.strides[1];
  }
  blocks_ = planar_ ? channels_ : (channels_ + lanes_ - 1) / lanes_;
}

}  // namespace lockstep::cpu
