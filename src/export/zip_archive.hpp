#pragma once

#include "lockstep/io/file_parts.hpp"

#include <string>
#include <vector>

namespace lockstep {

struct ZipEntry {
  std::string name;
  FilePart content;
};

/// A zip archive of uncompressed entries (PKWARE's APPNOTE.TXT 6.3.10, without ZIP64), all dated
/// 1980-01-01, so the same entries give the same bytes. Contents begin at multiples of 64 bytes,
/// for readers that map the file; an extra field "FB" fills the gap, as in PyTorch. Error(usage)
/// from 4 GiB or 65,535 entries.
[[nodiscard]] FileParts zip_archive(std::vector<ZipEntry> entries);

}  // namespace lockstep
