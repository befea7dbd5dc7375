#include "hdf5_types.hpp"

#include "lockstep/core/float16.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace lockstep::h5 {
namespace {

constexpr std::uint64_t max_elements = std::uint64_t{1} << 62;

enum Class : std::uint8_t { fixed_point = 0, floating_point = 1, string = 3, variable_length = 9 };

bool is_whole_integer(Cursor properties, std::size_t size) {
  const bool fits = size == 1 || size == 2 || size == 4 || size == 8;
  return properties.number(2) == 0 && properties.number(2) == 8 * size && fits;
}

/// Whether the format of a float is IEEE's of its size.
bool is_ieee(Cursor properties, std::size_t size, std::uint64_t bits) {
  struct Format {
    std::size_t size;
    std::array<std::uint64_t, 7> properties;  ///< offset, precision, exponent, mantissa, bias
    std::uint64_t sign;
  };
  static constexpr std::array<Format, 3> formats{{{2, {0, 16, 10, 5, 0, 10, 15}, 15},
                                                  {4, {0, 32, 23, 8, 0, 23, 127}, 31},
                                                  {8, {0, 64, 52, 11, 0, 52, 1023}, 63}}};
  const auto format = std::ranges::find(formats, size, &Format::size);
  if (format == formats.end()) return false;
  constexpr std::array<std::size_t, 7> widths{2, 2, 1, 1, 1, 1, 4};
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (properties.number(widths[i]) != format->properties[i]) return false;
  }
  constexpr std::uint64_t order = 0x41;
  constexpr std::uint64_t implied_bit = 0x20;
  constexpr std::uint64_t sign_location = 0xFF00;
  const bool is_known_order = (bits & order) == 0 || (bits & order) == 1;
  return is_known_order && (bits & 0x30) == implied_bit &&
         (bits & sign_location) >> 8 == format->sign;
}

/// The bits of an element, as an unsigned number.
std::uint64_t load(const std::byte* bytes, std::size_t size, bool little_endian) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value = (value << 8) | std::to_integer<std::uint64_t>(bytes[little_endian ? size - 1 - i : i]);
  }
  return value;
}

double float_from(std::uint64_t bits, std::size_t size) noexcept {
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

}  // namespace

StoredType parse_datatype(Cursor cursor) {
  StoredType type;
  const std::uint8_t first = cursor.byte();
  const std::uint64_t bits = cursor.number(3);
  type.element.size = static_cast<std::size_t>(cursor.number(4));
  type.element.little_endian = (bits & 1) == 0 || type.element.size == 1;
  switch (first & 0x0F) {
    case fixed_point:
      if (is_whole_integer(cursor, type.element.size)) type.element.type = TypeClass::integer;
      type.element.is_signed = (bits & 0x08) != 0;
      break;
    case floating_point:
      if (is_ieee(cursor, type.element.size, bits)) type.element.type = TypeClass::floating;
      type.element.is_signed = true;
      break;
    case string:
      type.element.type = TypeClass::text;
      type.is_space_padded = (bits & 0x0F) == 2;
      break;
    case variable_length:
      // Others are sequences.
      if ((bits & 0x0F) == 1) type.element.type = TypeClass::text;
      type.is_variable_text = true;
      break;
    default:
      break;
  }
  return type;
}

std::string to_string(const ElementType& type) {
  if (type.type == TypeClass::other) return "of another type";
  if (type.type == TypeClass::text) return "text";
  const char* name = type.type == TypeClass::floating ? "float" : type.is_signed ? "int" : "uint";
  return fmt::format("{}{}{}", name, type.size * 8, type.little_endian ? "" : " big-endian");
}

Extent parse_dataspace(Cursor cursor, const std::string& object) {
  const std::uint8_t version = cursor.byte();
  const std::uint8_t rank = cursor.byte();
  const std::uint8_t flags = cursor.byte();
  constexpr std::uint8_t null = 2;
  const std::uint8_t kind = version == 2 ? cursor.byte() : 0;
  if (version == 1) cursor.skip(5);
  if (version < 1 || version > 2 || rank > 32 || flags > 1) {
    fail(ExitStatus::bad_input,
         "the shape of {} cannot be read (version {}, {} axes); write it again", object, version,
         rank);
  }
  if (kind == null) {
    fail(ExitStatus::bad_input, "{} has no values (its data space is empty); write it again",
         object);
  }
  Extent extent;
  std::uint64_t nonzero_product = 1;  // a zero axis must not hide an overflow
  for (std::uint8_t axis = 0; axis < rank; ++axis) {
    const std::uint64_t dim = cursor.number(8);
    if (dim != 0 && nonzero_product > max_elements / dim) {
      fail(ExitStatus::bad_input,
           "the shape of {} overflows (more than 2^62 values); it is damaged", object);
    }
    nonzero_product *= dim != 0 ? dim : 1;
    extent.elements *= dim;
    extent.dims.push_back(dim);
  }
  extent.max_dims = extent.dims;
  if ((flags & 1) != 0) {
    for (std::uint64_t& dim : extent.max_dims) dim = cursor.number(8);
  }
  return extent;
}

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

#define LOCKSTEP_H5_CONVERT(T) \
  template void convert<T>(std::span<const std::byte>, const ElementType&, std::span<T>);
LOCKSTEP_H5_CONVERT(std::int8_t)
LOCKSTEP_H5_CONVERT(std::uint8_t)
LOCKSTEP_H5_CONVERT(std::int16_t)
LOCKSTEP_H5_CONVERT(std::uint16_t)
LOCKSTEP_H5_CONVERT(std::int32_t)
LOCKSTEP_H5_CONVERT(std::uint32_t)
LOCKSTEP_H5_CONVERT(std::int64_t)
LOCKSTEP_H5_CONVERT(std::uint64_t)
LOCKSTEP_H5_CONVERT(float)
LOCKSTEP_H5_CONVERT(double)
#undef LOCKSTEP_H5_CONVERT

}  // namespace lockstep::h5
