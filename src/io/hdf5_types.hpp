#pragma once

#include "hdf5_input.hpp"
#include "lockstep/io/hdf5_reader.hpp"

#include <cstddef>
#include <span>
#include <string>
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

/// Converts stored numbers of `type` to T. Integers are clamped.
template <typename T>
void convert(std::span<const std::byte> stored, const ElementType& type, std::span<T> values);

}  // namespace lockstep::h5
