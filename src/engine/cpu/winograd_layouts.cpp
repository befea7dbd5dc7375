#include "winograd_layouts.hpp"

#include <cassert>

namespace lockstep::cpu {

std::optional<PixelLayout> PixelLayout::of(const Desc& desc, int lanes) {
  const bool bf16 = type_of(desc) == DataType::bf16;
  if (!is_blocked(desc) || !(bf16 || type_of(desc) == DataType::f32)) return std::nullopt;
  const BlockedLayout layout = layout_of(desc);
  if (layout.dims.size() != 4 || layout.offset != 0) return std::nullopt;
  const bool channels_last = layout.inner_blocks.empty() && layout.strides[1] == 1;
  const bool in_blocks = layout.inner_blocks == Dims{lanes} && layout.inner_axes == Dims{1};
  if (!channels_last && !in_blocks) return std::nullopt;
  if (layout.padded_dims[1] % lanes != 0) return std::nullopt;
  return PixelLayout{.bf16 = bf16,
                     .lanes = lanes,
                     .vectors = layout.padded_dims[1] / lanes,
                     .images = layout.dims[0],
                     .height = layout.dims[2],
                     .width = layout.dims[3],
                     .image_stride = layout.strides[0],
                     .vector_stride = channels_last ? lanes : layout.strides[1],
                     .row_stride = layout.strides[2],
                     .pixel_stride = layout.strides[3]};
}

Desc FilterLayout::desc(const Dims& dims, int lanes, int axis) {
  assert(lanes == 8 || lanes == 16);
  if (lanes == 16) return f32(dims, axis == 0 ? Tag::OIhw16i16o : Tag::OIhw16o16i);
  return f32(dims, axis == 0 ? Tag::OIhw8i8o : Tag::OIhw8o8i);
}

FilterLayout FilterLayout::of(const Desc& desc, int lanes, int axis) {
  const BlockedLayout layout = layout_of(desc);
  assert((layout.inner_blocks == Dims{lanes, lanes}) &&
         (layout.inner_axes == Dims{1 - axis, axis}));
  const auto vector = static_cast<std::size_t>(axis);
  const std::size_t row = 1 - vector;
  return {.lanes = lanes,
          .rows = layout.padded_dims[row],
          .vectors = layout.padded_dims[vector] / lanes,
          .block_stride = layout.strides[row],
          .vector_stride = layout.strides[vector],
          .height_stride = layout.strides[2],
          .width_stride = layout.strides[3]};
}

}  // namespace lockstep::cpu
