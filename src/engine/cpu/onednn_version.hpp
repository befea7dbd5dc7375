#pragma once

#include <dnnl.hpp>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

// The differences between oneDNN 3, the engine's target, and oneDNN 2.6 (Debian 12).

namespace lockstep::cpu {

/// Memory layout of a tensor's elements.
struct BlockedLayout {
  dnnl::memory::dims dims;
  dnnl::memory::dims padded_dims;
  dnnl::memory::dims strides;       ///< of the blocks along each axis, in values
  dnnl::memory::dims inner_blocks;  ///< sizes, the innermost last
  dnnl::memory::dims inner_axes;    ///< axis that each block splits
  dnnl::memory::dim offset = 0;     ///< of the first element
};

/// Window of a pooling primitive, one entry per image axis.
struct PoolingWindow {
  dnnl::memory::dims stride;
  dnnl::memory::dims kernel;
  dnnl::memory::dims padding;
  dnnl::memory::dims end_padding;
};

#if DNNL_VERSION_MAJOR >= 3

[[nodiscard]] inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) {
  return desc.get_dims();
}
[[nodiscard]] inline dnnl::memory::data_type type_of(const dnnl::memory::desc& desc) {
  return desc.get_data_type();
}
/// Whether a descriptor was created; its constructor may fail without an exception.
[[nodiscard]] inline bool was_made(const dnnl::memory::desc& desc) {
  return static_cast<bool>(desc);
}
[[nodiscard]] inline bool is_blocked(const dnnl::memory::desc& desc) {
  return desc.get_format_kind() == dnnl::memory::format_kind::blocked;
}
/// Requires is_blocked(desc).
[[nodiscard]] inline BlockedLayout layout_of(const dnnl::memory::desc& desc) {
  return {.dims = desc.get_dims(),
          .padded_dims = desc.get_padded_dims(),
          .strides = desc.get_strides(),
          .inner_blocks = desc.get_inner_blks(),
          .inner_axes = desc.get_inner_idxs(),
          .offset = desc.get_submemory_offset()};
}

/// The descriptor of `Primitive`, given the arguments that follow the engine in oneDNN 3.
template <typename Primitive, typename... Arguments>
[[nodiscard]] typename Primitive::primitive_desc primitive_desc(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const Arguments&... arguments) {
  return {engine, arguments..., attributes};
}
/// The same for a backward primitive, given the forward one.
template <typename Primitive, typename Forward, typename... Arguments>
[[nodiscard]] typename Primitive::primitive_desc backward_primitive_desc(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const Forward& forward,
    const Arguments&... arguments) {
  return {engine, arguments..., forward, attributes};
}
/// The first implementation of a backward primitive that `accepts`; nullopt if there is none.
template <typename Primitive, typename Accepts, typename Forward, typename... Arguments>
[[nodiscard]] std::optional<typename Primitive::primitive_desc> first_backward_primitive_desc(
    Accepts&& accepts, const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const Forward& forward, const Arguments&... arguments) {
  typename Primitive::primitive_desc made(engine, arguments..., forward, attributes);
  while (!accepts(made)) {
    if (!made.next_impl()) return std::nullopt;
  }
  return made;
}

/// make(...) with the arguments of a pooling primitive that follow its tensors.
template <typename Make>
[[nodiscard]] auto with_pooling_window(const PoolingWindow& window, Make&& make) {
  const dnnl::memory::dims dilation(window.kernel.size(), 0);
  return make(window.stride, window.kernel, dilation, window.padding, window.end_padding);
}

/// make(...) with the descriptors of an element-wise primitive's source and target, which are
/// equal.
template <typename Make>
[[nodiscard]] auto with_source_and_target(const dnnl::memory::desc& desc, Make&& make) {
  return make(desc, desc);
}

#else

[[nodiscard]] inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) {
  return desc.dims();
}
[[nodiscard]] inline dnnl::memory::data_type type_of(const dnnl::memory::desc& desc) {
  return desc.data_type();
}
[[nodiscard]] inline bool was_made(const dnnl::memory::desc& desc) {
  return desc.data.ndims > 0;
}
[[nodiscard]] inline bool is_blocked(const dnnl::memory::desc& desc) {
  return desc.data.format_kind == dnnl_blocked;
}
[[nodiscard]] inline BlockedLayout layout_of(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  const auto axes = [&](const dnnl_dim_t* values) {
    return dnnl::memory::dims(values, values + data.ndims);
  };
  const auto blocks = [&](const dnnl_dim_t* values) {
    return dnnl::memory::dims(values, values + blocking.inner_nblks);
  };
  return {.dims = axes(data.dims),
          .padded_dims = axes(data.padded_dims),
          .strides = axes(blocking.strides),
          .inner_blocks = blocks(blocking.inner_blks),
          .inner_axes = blocks(blocking.inner_idxs),
          .offset = data.offset0};
}

template <typename Primitive, typename... Arguments>
[[nodiscard]] typename Primitive::primitive_desc primitive_desc(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const Arguments&... arguments) {
  return {typename Primitive::desc(arguments...), attributes, engine};
}
template <typename Primitive, typename Forward, typename... Arguments>
[[nodiscard]] typename Primitive::primitive_desc backward_primitive_desc(
    const dnnl::engine& engine, const dnnl::primitive_attr& attributes, const Forward& forward,
    const Arguments&... arguments) {
  return {typename Primitive::desc(arguments...), attributes, engine, forward};
}
template <typename Primitive, typename Accepts, typename Forward, typename... Arguments>
[[nodiscard]] std::optional<typename Primitive::primitive_desc> first_backward_primitive_desc(
    Accepts&& accepts, const dnnl::engine& engine, const dnnl::primitive_attr& attributes,
    const Forward& forward, const Arguments&... arguments) {
  const typename Primitive::desc desc(arguments...);  // next_impl() reads it
  typename Primitive::primitive_desc made(desc, attributes, engine, forward);
  while (!accepts(made)) {
    if (!made.next_impl()) return std::nullopt;
  }
  return made;
}

template <typename Make>
[[nodiscard]] auto with_pooling_window(const PoolingWindow& window, Make&& make) {
  return make(window.stride, window.kernel, window.padding, window.end_padding);
}

template <typename Make>
[[nodiscard]] auto with_source_and_target(const dnnl::memory::desc& desc, Make&& make) {
  return make(desc);
}

#endif

}  // namespace lockstep::cpu
