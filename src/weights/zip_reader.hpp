#pragma once

#include "lockstep/core/descriptor.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace lockstep {

/// Where an entry of an archive lies in its file.
struct ZipPlace {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  bool is_compressed = false;
};

/// The entries of a zip archive (PKWARE's APPNOTE.TXT, with ZIP64) by name. Error(bad_input) if it
/// is damaged; `path` names the file.
[[nodiscard]] std::map<std::string, ZipPlace> read_zip(const Descriptor& file,
                                                       const std::string& path);

}  // namespace lockstep
