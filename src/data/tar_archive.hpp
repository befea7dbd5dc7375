#pragma once

#include "lockstep/core/function_ref.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// The bytes of an uncompressed tar archive: a file, or a member of another archive.
struct TarArchive {
  std::string path;  ///< for messages
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  /// Reads exactly these bytes, at an offset of the file, before `end`.
  FunctionRef<void(std::uint64_t offset, std::span<std::byte> bytes)> read;
};

/// An entry of an archive that is no folder.
struct TarMember {
  std::string name;
  std::uint64_t offset = 0;  ///< of its bytes in the file
  std::uint64_t bytes = 0;
  const char* special = "";  ///< "a hard link", "a FIFO", ...; empty: a regular file
};

/// Calls `visit` for each entry but folders, in the archive's order. Reads the formats ustar, GNU
/// (long names, large sizes) and pax (path, size), and only the headers. Error(bad_input) if the
/// archive is compressed, damaged, empty, without the two blocks of zeros at its end, goes on after
/// them, or has sparse files.
void for_each_member(const TarArchive& archive, FunctionRef<void(const TarMember&)> visit);

}  // namespace lockstep
