#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/engine/element_offsets.hpp"
#include "onednn_version.hpp"

#include <dnnl.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cpu {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using DataType = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

/// Runs `call`; a dnnl::error becomes Error(internal) that names `what`.
template <typename Call>
auto checked(std::string_view what, Call&& call) {
  try {
    return call();
  } catch (const dnnl::error& error) {
    fail(ExitStatus::internal, "oneDNN failed in {} (status {}: {})", what,
         static_cast<int>(error.status), error.message);
  }
}

/// "oneDNN 2.6.3"
[[nodiscard]] std::string library_version();
/// Instruction set that the library uses: "avx512_core_bf16".
[[nodiscard]] std::string instruction_set();
/// Whether that instruction set includes `isa`.
[[nodiscard]] bool has_instructions(dnnl::cpu_isa isa);
/// Type of the CPU engine's values. Throws Error(usage) if it cannot compute in this precision.
[[nodiscard]] DataType activation_type(Precision precision);

[[nodiscard]] Desc f32(const Dims& dims, Tag tag);
/// fp32, of one axis.
[[nodiscard]] inline Desc vector(Dims::value_type size) {
  return f32({size}, Tag::x);
}
/// With the channels of a pixel adjacent: (N, H, W, C), or (N, C).
[[nodiscard]] inline Desc rows(const Dims& dims, DataType type) {
  return {dims, type, dims.size() == 4 ? Tag::nhwc : Tag::nc};
}
/// A descriptor of `type` whose layout oneDNN chooses.
[[nodiscard]] Desc any_layout(const Shape& shape, DataType type);
/// Row-major without gaps: x, nc, or nchw by the number of axes.
[[nodiscard]] Desc plain(const Shape& shape, DataType type = DataType::f32);
/// The same layout for values of another type; empty if the library cannot describe it.
[[nodiscard]] std::optional<Desc> in_type(const Desc& desc, DataType type);
[[nodiscard]] Dims dims_of(const Shape& shape);

/// Number of values of a tensor, including padding.
[[nodiscard]] std::size_t padded_size(const Desc& desc);

/// Of a blocked layout.
[[nodiscard]] ElementOffsets element_offsets(const Desc& desc);

/// Whether both have the same type and element offsets, so that no reorder is needed even if the
/// descriptors differ (nChw16c and nchw where H = W = 1).
[[nodiscard]] bool same_placement(const Desc& a, const Desc& b);

}  // namespace lockstep::cpu
