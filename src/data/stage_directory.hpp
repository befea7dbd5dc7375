#pragma once

#include "lockstep/core/unique_handle.hpp"

#include <unistd.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// A new directory below another, held by a file lock as long as this object lives, and removed
/// with it. What dead holders left beside it is removed first.
class StageDirectory final {
 public:
  /// Error(cannot_write).
  StageDirectory(const std::string& parent, const std::string& job);
  ~StageDirectory();
  StageDirectory(const StageDirectory&) = delete;
  StageDirectory& operator=(const StageDirectory&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Bytes that can be written and leave a little for others.
  [[nodiscard]] std::uint64_t free_bytes() const;

 private:
  struct DescriptorTraits {
    using Handle = int;
    static Handle null() noexcept { return -1; }
    static void destroy(Handle handle) noexcept { ::close(handle); }
  };
  std::string path_;
  UniqueHandle<DescriptorTraits> lock_;
};

}  // namespace lockstep
