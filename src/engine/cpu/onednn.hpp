#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "onednn_version.hpp"

#include <dnnl.hpp>

#include <array>
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
/// What the library computes with: "avx512_core_bf16".
[[nodiscard]] std::string instruction_set();
/// Whether that includes `isa`.
[[nodiscard]] bool has_instructions(dnnl::cpu_isa isa);

[[nodiscard]] Desc f32(const Dims& dims, Tag tag);
/// Of `type` with the layout left to oneDNN.
[[nodiscard]] Desc any_layout(const Shape& shape, DataType type);
/// Row-major without gaps: x, nc, or nchw by the number of axes.
[[nodiscard]] Desc plain(const Shape& shape, DataType type = DataType::f32);
/// The same layout with values of another type; empty where the library cannot describe it.
[[nodiscard]] std::optional<Desc> in_type(const Desc& desc, DataType type);
[[nodiscard]] Dims dims_of(const Shape& shape);

/// Number of values of a tensor with its padding.
[[nodiscard]] std::size_t padded_size(const Desc& desc);

/// Where each element of a blocked tensor lies. A block splits one axis only, so an element's
/// offset is a sum of one term per axis.
class BlockedOffsets final {
 public:
  explicit BlockedOffsets(const Desc& desc);

  /// Calls visit(plain index, offset) for each element in row-major order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    std::size_t plain_index = 0;
    for (const std::size_t a : terms_[0]) {
      for (const std::size_t b : terms_[1]) {
        for (const std::size_t c : terms_[2]) {
          for (const std::size_t d : terms_[3]) visit(plain_index++, a + b + c + d);
        }
      }
    }
  }
  [[nodiscard]] std::size_t elements() const noexcept;
  friend bool operator==(const BlockedOffsets&, const BlockedOffsets&) = default;

 private:
  std::array<std::vector<std::size_t>, 4> terms_;
};

/// Whether all elements are of one type and lie at the same offsets in both, so that no reorder is
/// needed, even where the descriptors differ by name (nChw16c and nchw where H = W = 1).
[[nodiscard]] bool same_placement(const Desc& a, const Desc& b);

}  // namespace lockstep::cpu
