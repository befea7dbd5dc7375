#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

namespace lockstep {

static_assert(std::endian::native == std::endian::little, "files are written as memory holds them");

/// The bytes of a number as files store it, least significant first.
template <typename T>
[[nodiscard]] std::string little_endian(T value) {
  static_assert(std::is_arithmetic_v<T>);
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

}  // namespace lockstep
