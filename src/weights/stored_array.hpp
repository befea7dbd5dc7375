#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// A type of numbers in files of weights.
struct ElementKind {
  std::string_view name;        ///< in messages
  std::string_view storage;     ///< PyTorch's class of storage: `torch.FloatStorage`
  std::string_view short_name;  ///< in safetensors: F32
  std::size_t bytes;
  bool is_float;
};
/// Null: there is no such type.
[[nodiscard]] const ElementKind* kind_of_storage(std::string_view storage) noexcept;
[[nodiscard]] const ElementKind* kind_of_short_name(std::string_view short_name) noexcept;

/// Converts `count` little-endian numbers of a floating-point kind, and appends them.
void append_floats(const ElementKind& kind, const std::byte* bytes, std::size_t count,
                   std::vector<float>& values);

/// A tensor of another program's file, as its values lie there.
struct StoredArray {
  std::string name;
  const ElementKind* kind = nullptr;
  std::vector<std::int64_t> extents;  ///< all at least 0
  std::vector<std::int64_t> strides;  ///< in elements, all at least 0; as many as extents
  std::size_t file = 0;               ///< which of the files
  std::uint64_t begin = 0;            ///< byte of its first value in the file
  /// The part of the file in which it lies, perhaps with others.
  struct Checked {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };
  std::optional<Checked> checked = {};  ///< nullopt: the file has no sum
};

/// Product of the extents; nullopt: it is 2^62 or more.
[[nodiscard]] std::optional<std::int64_t> elements_of(const std::vector<std::int64_t>& extents);
/// Of row-major order. Precondition: elements_of() these extents is known.
[[nodiscard]] std::vector<std::int64_t> row_major(const std::vector<std::int64_t>& extents);
/// From the first to the last value, in elements; nullopt: it is 2^62 or more.
[[nodiscard]] std::optional<std::int64_t> span_of(const StoredArray& array);
/// "64x3x7x7", for any number of axes.
[[nodiscard]] std::string extents_text(const std::vector<std::int64_t>& extents);

}  // namespace lockstep
