#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A piece of a file: bytes of its own, then bytes that their owner keeps until the file is
/// written.
struct FilePart {
  std::string bytes = {};
  std::span<const std::byte> view = {};

  [[nodiscard]] std::uint64_t size() const noexcept { return bytes.size() + view.size(); }
};

/// Contents of a file, without a copy of its large pieces.
using FileParts = std::vector<FilePart>;

}  // namespace lockstep
