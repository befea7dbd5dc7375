#include "hdf5_types.hpp"

#include <algorithm>
#include <array>

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

}  // namespace lockstep::h5
