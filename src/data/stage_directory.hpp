#pragma once

#include "lockstep/core/descriptor.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Creates the directory if missing, removes what dead StageDirectory holders left in it, and
/// returns the bytes that may be written there, less a small reserve for others.
/// Error(cannot_write).
[[nodiscard]] std::uint64_t prepare_for_staging(const std::string& parent);

/// A new directory below `parent`. Holds a file lock in it, and removes it in the destructor.
class StageDirectory final {
 public:
  /// Error(cannot_write).
  StageDirectory(const std::string& parent, const std::string& job);
  ~StageDirectory();
  StageDirectory(const StageDirectory&) = delete;
  StageDirectory& operator=(const StageDirectory&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  Descriptor lock_;
};

}  // namespace lockstep
