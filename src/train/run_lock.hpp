#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/train/run_directory.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace lockstep {

/// Who holds a run directory, as its lock file says.
struct RunHolder {
  std::string job;
  std::string host;
  std::string boot;  ///< of the host's kernel: two machines may share a name
  std::int64_t process = 0;
  std::string started;
};

class RunDirectory::Lock final {
 public:
  explicit Lock(const RunDirectoryOptions& options);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  [[nodiscard]] const std::string& taken_over() const noexcept { return taken_over_; }

 private:
  enum class Attempt { got_it, held_by_another, unsupported };

  [[nodiscard]] Attempt try_lock();
  void wait_until_free(const RunHolder& holder);
  void write_holder();
  void beat();
  [[nodiscard]] std::optional<RunHolder> read_holder() const;
  [[nodiscard]] std::chrono::nanoseconds last_heartbeat() const;
  /// What the file system's clock says; hosts' clocks may differ by minutes.
  [[nodiscard]] std::chrono::nanoseconds file_system_now() const;
  [[noreturn]] void refuse(const RunHolder& holder) const;

  RunDirectoryOptions options_;
  std::string path_;
  std::string taken_over_;
  RunHolder self_;
  Descriptor file_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  ///< guarded by mutex_
  std::thread heart_;
};

}  // namespace lockstep
