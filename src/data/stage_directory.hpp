#pragma once

#include "lockstep/core/descriptor.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Makes the directory where it is not there, removes what dead holders of a StageDirectory left in
/// it, and tells the bytes that can be written there and leave a little for others.
/// Error(cannot_write).
[[nodiscard]] std::uint64_t prepare_for_staging(const std::string& parent);

/// A new directory below another, held by a file lock as long as this object lives, and removed
/// with it.
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
