#pragma once

#include "lockstep/core/unique_handle.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep {

struct DescriptorTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void destroy(Handle handle) noexcept { ::close(handle); }
};
/// Owns a file descriptor.
using Descriptor = UniqueHandle<DescriptorTraits>;

/// Reads from `offset` until `bytes` is full or the file ends. The number of bytes read; nullopt on
/// a failure, with its errno.
[[nodiscard]] std::optional<std::size_t> read_at(const Descriptor& file, std::uint64_t offset,
                                                 std::span<std::byte> bytes) noexcept;

}  // namespace lockstep
