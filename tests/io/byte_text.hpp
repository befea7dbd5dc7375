#pragma once

#include "lockstep/io/file_parts.hpp"

#include <fmt/format.h>

#include <string>

namespace lockstep::test {

/// "50 4b 03 04"
[[nodiscard]] inline std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned char>(byte));
  }
  return text;
}

/// The bytes of a file.
[[nodiscard]] inline std::string joined(const FileParts& parts) {
  std::string bytes;
  for (const FilePart& part : parts) {
    bytes += part.bytes;
    bytes.append(reinterpret_cast<const char*>(part.view.data()), part.view.size());
  }
  return bytes;
}

}  // namespace lockstep::test
