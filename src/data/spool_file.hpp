#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/file_path.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// A file without a name that vanishes with its owner, also if the process is killed.
class SpoolFile final {
 public:
  /// In the directory of `file`. Error(cannot_write).
  explicit SpoolFile(const FilePath& file);

  void append(std::span<const std::byte> bytes);                      ///< Error(cannot_write)
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;  ///< Error(internal)

 private:
  std::string path_;  ///< for messages
  Descriptor file_;
};

}  // namespace lockstep
