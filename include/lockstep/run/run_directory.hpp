#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/run/directory_lock.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

/// The directory of one run, held by one live job as long as this object lives. Rank 0 only.
class RunDirectory final {
 public:
  /// Creates the directory, with `log/` and `checkpoints/`, and takes the lock, as DirectoryLock.
  explicit RunDirectory(const DirectoryLockOptions& options);

  [[nodiscard]] const std::string& path() const noexcept { return files_.path(); }
  [[nodiscard]] FilePath checkpoints() const { return files_ / "checkpoints"; }
  /// "JOB on HOST" of the dead holder that was taken over; empty: none.
  [[nodiscard]] const std::string& taken_over() const noexcept { return lock_->taken_over(); }

  /// Error(cannot_write), naming the new holder, if another job holds the directory now; reads the
  /// lock file. Any thread may call this and the two below.
  void require_held() const { lock_->require_held(); }
  /// The same check without an error; reads the file only if it was not read for two heartbeats.
  [[nodiscard]] bool is_held() const { return lock_->is_held(); }
  /// Whether another job is known to hold the directory; does not read the file.
  [[nodiscard]] bool is_lost() const noexcept { return lock_->is_lost(); }

  /// Writes config.ini, atomically. Error(cannot_write).
  void write_config(std::string_view text);

 private:
  OpenDirectory files_;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace lockstep
