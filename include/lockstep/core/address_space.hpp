#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A limit on the memory that this process may map, whether it is used or not.
struct AddressSpaceLimit {
  std::uint64_t bytes = 0;
  std::uint64_t mapped = 0;
  const char* source = "";  ///< "ulimit -v" or "ulimit -d"
  [[nodiscard]] std::uint64_t left() const noexcept { return mapped < bytes ? bytes - mapped : 0; }
};

/// The limit of which least is left; nullopt: there is none.
[[nodiscard]] std::optional<AddressSpaceLimit> address_space_limit() noexcept;

/// If there is a limit, makes all threads allocate from one heap, since the C library maps 64 MiB
/// or more for each heap. Call it before the first thread starts.
void use_one_heap_if_limited() noexcept;

/// Address space of a thread: its stack.
[[nodiscard]] std::uint64_t thread_address_space() noexcept;

/// Error(usage) if there is a limit and less than `bytes` are left. `purpose`: "to start".
/// Libraries that find no memory crash, or end the process without a message.
void require_address_space(std::uint64_t bytes, std::string_view purpose);

/// "ulimit -v allows 400.0 MiB, of which 390.2 MiB are mapped"; empty without a limit.
[[nodiscard]] std::string describe_address_space();

}  // namespace lockstep
