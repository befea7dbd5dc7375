#pragma once

#include "hdf5_input.hpp"
#include "lockstep/core/float16.hpp"
#include "lockstep/io/hdf5_reader.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::h5 {

/// What a datatype message says. The element of text of variable length is a reference to a heap.
struct StoredType {
  ElementType element;
  bool is_variable_text = false;
  bool is_space_padded = false;
};
[[nodiscard]] StoredType parse_datatype(Cursor cursor);
[[nodiscard]] std::string to_string(const ElementType& type);

struct Extent {
  std::vector<std::uint64_t> dims;
  std::vector<std::uint64_t> max_dims;  ///< to which the axes may grow; `undefined`: without limit
  std::uint64_t elements = 1;
};
/// Of a dataspace message. Error(bad_input) if there are no values, or more than 2^62. `object` is
/// for messages.
[[nodiscard]] Extent parse_dataspace(Cursor cursor, const std::string& object);

/// The bits of an element, as an unsigned number.
inline std::uint64_t load(const std::byte* bytes, std::size_t size, bool little_endian) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value = (value << 8) | std::to_integer<std::uint64_t>(bytes[little_endian ? size - 1 - i : i]);
  }
  return value;
}

inline double float_from(std::uint64_t bits, std::size_t size) noexcept {
  if (size == 2) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    return static_cast<float>(half);
  }
  if (size == 4) return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  return std::bit_cast<double>(bits);
}

template <typename T, typename From>
T clamped(From value) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    if (std::cmp_less(value, std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    if (std::cmp_greater(value, std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return static_cast<T>(value);
  }
}

/// Converts stored numbers of `type` to T. Integers are clamped.
template <typename T>
void convert(std::span<const std::byte> stored, const ElementType& type, std::span<T> values) {
  const bool is_same = type.little_endian && type.size == sizeof(T) &&
                       (type.type == TypeClass::floating) == std::is_floating_point_v<T> &&
                       type.is_signed == std::is_signed_v<T>;
  if (is_same) {
    // `stored` may be the same memory.
    if (!values.empty()) std::memmove(values.data(), stored.data(), values.size_bytes());
    return;
  }
  const int unused = static_cast<int>(64 - 8 * type.size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = load(stored.data() + i * type.size, type.size, type.little_endian);
    if (type.type == TypeClass::floating) {
      values[i] = static_cast<T>(float_from(bits, type.size));
    } else if (type.is_signed) {
      values[i] = clamped<T>(static_cast<std::int64_t>(bits << unused) >> unused);
    } else {
      values[i] = clamped<T>(bits);
    }
  }
}

}  // namespace lockstep::h5
