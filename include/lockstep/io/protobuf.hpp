#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// The wire format of protocol buffers, for writers of a few messages:
/// https://protobuf.dev/programming-guides/encoding. A message is the text of its fields in a row,
/// and is a bytes_field() of the message around it.
namespace lockstep::protobuf {

/// Seven bits a byte, least significant first.
[[nodiscard]] std::string varint(std::uint64_t value);

// A field's key and value: wire types 0 (varint), 1 (64 bits), 2 (bytes), 5 (32 bits).
[[nodiscard]] std::string varint_field(int number, std::uint64_t value);
[[nodiscard]] std::string double_field(int number, double value);
[[nodiscard]] std::string bytes_field(int number, std::string_view value);
[[nodiscard]] std::string float_field(int number, float value);

/// What precedes the `size` bytes of a bytes_field().
[[nodiscard]] std::string bytes_header(int number, std::uint64_t size);

}  // namespace lockstep::protobuf
