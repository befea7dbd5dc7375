#include "lockstep/io/protobuf.hpp"

#include "lockstep/core/little_endian.hpp"

namespace lockstep::protobuf {
namespace {

enum class WireType : std::uint64_t { varint = 0, bits64 = 1, bytes = 2, bits32 = 5 };

std::string key(int number, WireType type) {
  return varint((static_cast<std::uint64_t>(number) << 3) | static_cast<std::uint64_t>(type));
}

}  // namespace

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string varint_field(int number, std::uint64_t value) {
  return key(number, WireType::varint) + varint(value);
}

std::string double_field(int number, double value) {
  return key(number, WireType::bits64) + little_endian(value);
}

std::string bytes_field(int number, std::string_view value) {
  return bytes_header(number, value.size()) + std::string(value);
}

std::string float_field(int number, float value) {
  return key(number, WireType::bits32) + little_endian(value);
}

std::string bytes_header(int number, std::uint64_t size) {
  return key(number, WireType::bytes) + varint(size);
}

}  // namespace lockstep::protobuf
