#include "onednn.hpp"

#include "lockstep/engine/cpu_engine.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace lockstep::cpu {
namespace {

/// Whether the layout has values that belong to no element.
bool has_padding(const Desc& desc) {
  return dims_of(desc) != layout_of(desc).padded_dims;
}

}  // namespace

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

std::optional<Desc> in_type(const Desc& desc, DataType type) {
  const DataType own = type_of(desc);
  if (own == type) return desc;
  if (!is_blocked(desc)) return std::nullopt;
  const BlockedLayout layout = layout_of(desc);
  if (layout.inner_blocks.empty()) return Desc(layout.dims, type, layout.strides);
  // Blocked layouts can only be made from a tag, which a descriptor does not provide.
  for (int tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; ++tag) {
    constexpr bool allow_empty = true;  // for tags with another number of axes
    const Desc tagged(layout.dims, own, static_cast<Tag>(tag), allow_empty);
    if (was_made(tagged) && tagged == desc) return Desc(layout.dims, type, static_cast<Tag>(tag));
  }
  return std::nullopt;
}

std::size_t padded_size(const Desc& desc) {
  return desc.get_size() / dnnl::memory::data_type_size(type_of(desc));
}

ElementOffsets element_offsets(const Desc& desc) {
  assert(is_blocked(desc));
  const BlockedLayout layout = layout_of(desc);
  ElementOffsets offsets;
  assert(layout.dims.size() <= offsets.terms.size());
  for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
    std::vector<std::size_t>& terms = offsets.terms[axis];
    terms.assign(static_cast<std::size_t>(layout.dims[axis]), 0);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      std::size_t rest = i;
      std::size_t stride = 1;  // of the current block, from the innermost outward
      std::size_t offset = axis == 0 ? static_cast<std::size_t>(layout.offset) : 0;
      for (std::size_t block = layout.inner_blocks.size(); block-- > 0;) {
        const auto extent = static_cast<std::size_t>(layout.inner_blocks[block]);
        if (static_cast<std::size_t>(layout.inner_axes[block]) == axis) {
          offset += rest % extent * stride;
          rest /= extent;
        }
        stride *= extent;
      }
      terms[i] = offset + rest * static_cast<std::size_t>(layout.strides[axis]);
    }
  }
  return offsets;
}

bool same_placement(const Desc& a, const Desc& b) {
  if (a == b) return true;
  if (!is_blocked(a) || !is_blocked(b)) return false;
  return type_of(a) == type_of(b) && !has_padding(a) && !has_padding(b) &&
         dims_of(a) == dims_of(b) && element_offsets(a) == element_offsets(b);
}

bool has_instructions(dnnl::cpu_isa isa) {
#if !defined(__x86_64__)
  return false;  // the library names those of x86-64 only
#endif
  // Each value contains the bits of all instruction sets that it includes.
  const auto wanted = static_cast<unsigned>(isa);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

std::string instruction_set() {
  constexpr std::array<std::pair<dnnl::cpu_isa, const char*>, 8> known{{
      {dnnl::cpu_isa::avx512_core_amx, "avx512_core_amx"},
      {dnnl::cpu_isa::avx512_core_bf16, "avx512_core_bf16"},
      {dnnl::cpu_isa::avx512_core_vnni, "avx512_core_vnni"},
      {dnnl::cpu_isa::avx512_core, "avx512_core"},
      {dnnl::cpu_isa::avx2_vnni, "avx2_vnni"},
      {dnnl::cpu_isa::avx2, "avx2"},
      {dnnl::cpu_isa::avx, "avx"},
      {dnnl::cpu_isa::sse41, "sse41"},
  }};
  const auto widest =
      std::ranges::find_if(known, [](const auto& each) { return has_instructions(each.first); });
  if (widest != known.end()) return widest->second;
#if defined(__aarch64__)
  return "64-bit Arm";
#else
  return "another instruction set";
#endif
}

DataType activation_type(Precision precision) {
  if (precision == Precision::fp32) return DataType::f32;
  if (precision != Precision::bf16) {
    fail(ExitStatus::usage,
         "--precision {} does not go with the CPU engine ({} trains in fp32 or bf16); take one of "
         "them, or a GPU",
         to_string(precision), library_version());
  }
  if (!cpu_computes_in(precision)) {
    fail(ExitStatus::usage,
         "--precision bf16 cannot run on this processor ({} needs AVX-512 for it, and finds {}); "
         "take fp32",
         library_version(), instruction_set());
  }
  return DataType::bf16;
}

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace lockstep::cpu
