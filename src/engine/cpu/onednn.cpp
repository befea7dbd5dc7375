#include "onednn.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::cpu {

Dims dims_of(const Shape& shape) {
  return {shape.extents().begin(), shape.extents().end()};
}

Desc f32(const Dims& dims, Tag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

Desc any_layout(const Shape& shape, DataType type) {
  return {dims_of(shape), type, Tag::any};
}

Desc plain(const Shape& shape, DataType type) {
  constexpr std::array tags{Tag::a, Tag::ab, Tag::abc, Tag::abcd};
  assert(shape.rank() >= 1 && shape.rank() <= tags.size());
  return {dims_of(shape), type, tags[shape.rank() - 1]};
}

Desc in_type(const Desc& desc, DataType type) {
  dnnl_memory_desc_t data = desc.data;
  data.data_type = dnnl::memory::convert_to_c(type);
  return Desc(data);
}

std::size_t padded_size(const Desc& desc) {
  return desc.get_size() / dnnl::memory::data_type_size(desc.data_type());
}

bool has_padding(const Desc& desc) {
  return !std::equal(desc.data.dims, desc.data.dims + desc.data.ndims, desc.data.padded_dims);
}

BlockedOffsets::BlockedOffsets(const Desc& desc) {
  const dnnl_memory_desc_t& data = desc.data;
  assert(data.format_kind == dnnl_blocked && data.ndims <= 4);
  const dnnl_blocking_desc_t& blocking = data.format_desc.blocking;
  terms_.fill({0});
  for (int axis = 0; axis < data.ndims; ++axis) {
    std::vector<std::size_t>& terms = terms_[static_cast<std::size_t>(axis)];
    terms.assign(static_cast<std::size_t>(data.dims[axis]), 0);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::size_t rest = i;
      std::size_t stride = 1;  // of the block at hand, from the innermost outward
      std::size_t offset = axis == 0 ? static_cast<std::size_t>(data.offset0) : 0;
      for (int block = blocking.inner_nblks - 1; block >= 0; --block) {
        const auto extent = static_cast<std::size_t>(blocking.inner_blks[block]);
        if (blocking.inner_idxs[block] == axis) {
          offset += rest % extent * stride;
          rest /= extent;
        }
        stride *= extent;
      }
      terms[i] = offset + rest * static_cast<std::size_t>(blocking.strides[axis]);
    }
  }
}

std::size_t BlockedOffsets::elements() const noexcept {
  std::size_t product = 1;
  for (const auto& terms : terms_) product *= terms.size();
  return product;
}

bool same_placement(const Desc& a, const Desc& b) {
  if (a == b) return true;
  if (a.data.format_kind != dnnl_blocked || b.data.format_kind != dnnl_blocked) return false;
  return a.data_type() == b.data_type() && !has_padding(a) && !has_padding(b) &&
         a.dims() == b.dims() && BlockedOffsets(a) == BlockedOffsets(b);
}

std::string instruction_set() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "another instruction set";
  }
}

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace lockstep::cpu
