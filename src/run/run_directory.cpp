#include "lockstep/run/run_directory.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <fmt/format.h>

namespace lockstep {

namespace {

constexpr const char* suggestion = "check --run-dir and its permissions";

/// Makes it if it is absent.
OpenDirectory open_run(const std::string& path) {
  make_directories(path, suggestion);
  return OpenDirectory(path);
}

}  // namespace

RunDirectory::RunDirectory(const DirectoryLockOptions& options) : files_(open_run(options.path)) {
  for (const FilePath& directory : {files_ / "log", checkpoints()}) {
    make_directories(directory, suggestion);
  }
  lock_ = std::make_unique<DirectoryLock>(options);
  remove_stale_temporaries(files_ / ".");
}

void RunDirectory::write_config(std::string_view text) {
  require_held();
  write_text_atomically(files_ / "config.ini", text);
}

}  // namespace lockstep
