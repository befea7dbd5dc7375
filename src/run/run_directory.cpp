#include "lockstep/run/run_directory.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <fmt/format.h>

namespace lockstep {

RunDirectory::RunDirectory(const DirectoryLockOptions& options) : path_(options.path) {
  for (const std::string& directory : {path_, path_ + "/log", checkpoints()}) {
    make_directories(directory, "check --run-dir and its permissions");
  }
  lock_ = std::make_unique<DirectoryLock>(options);
  taken_over_ = lock_->taken_over();
  remove_stale_temporaries(path_);
}

RunDirectory::~RunDirectory() = default;
RunDirectory::RunDirectory(RunDirectory&&) noexcept = default;
RunDirectory& RunDirectory::operator=(RunDirectory&&) noexcept = default;

void RunDirectory::require_held() const {
  lock_->require_held();
}
bool RunDirectory::is_held() const {
  return lock_->is_held();
}
bool RunDirectory::is_lost() const noexcept {
  return lock_->is_lost();
}

void RunDirectory::write_config(std::string_view text) {
  require_held();
  write_text_atomically(path_ + "/config.ini", text);
}

}  // namespace lockstep
