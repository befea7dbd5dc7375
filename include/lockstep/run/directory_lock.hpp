#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/file_lock.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/run_holder.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace lockstep {

struct DirectoryLockOptions {
  std::string path;  ///< of the directory
  std::string job;   ///< this job's name in messages to other jobs; see job_name()
  std::chrono::milliseconds heartbeat = std::chrono::seconds(15);
  /// A holder on another host counts as dead if its last heartbeat is older.
  std::chrono::milliseconds stale = std::chrono::seconds(60);
  /// Wait after writing the lock file if file locks do not work: must exceed the time between
  /// finding the directory free and writing the file.
  std::chrono::milliseconds settle = std::chrono::seconds(1);
  const char* file = "lock";           ///< name of the lock file in the directory
  const char* what = "run directory";  ///< in messages
  const char* option = "--run-dir";    ///< that names the directory
};

/// "Slurm job 1234" inside one, else "process 5678".
[[nodiscard]] std::string job_name();

/// Empties a lock file that names `job` if no process holds it: the job's earlier ranks are gone,
/// and new ones on other hosts need not wait until the lock is stale. Whether it did.
bool free_lock_of(const FilePath& lock, std::string_view job);

/// A directory that one live job writes to, held as long as this object lives.
///
/// The lock is a file with job, host, process and start time, held by try_lock(); a thread touches
/// it as heartbeat. If file locks do not work, or not across hosts, only the heartbeat shows that a
/// holder is alive. The file system's clock measures its age, so hosts' clocks do not matter. A
/// time more than a heartbeat in the future is no sign of life: only its change within `stale` is.
///
/// A holder that was suspended, or cut off from the file system, may come back after a takeover. So
/// each holder writes a random token to the file and checks it after taking the lock, at each
/// heartbeat, and before it changes any file that the new holder also uses.
class DirectoryLock final {
 public:
  /// Error(cannot_write) names the job and host of a live holder; Error(internal) if the file is
  /// locked and no live holder has written to it, which may pass. Takes over a dead holder's lock;
  /// may wait for up to `stale` to find that a holder on another host is dead.
  explicit DirectoryLock(const DirectoryLockOptions& options);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  [[nodiscard]] const std::string& taken_over() const noexcept { return taken_over_; }
  /// Reads the file again. Error(cannot_write), naming the new holder, if it is another job's.
  void require_held();
  /// Reads the file again only if the last read was two heartbeats ago or more (a suspension).
  [[nodiscard]] bool is_held();
  [[nodiscard]] bool is_lost() const noexcept { return lost_; }

 private:
  /// Waits, refuses if the holder is alive, and returns the result of the last try_lock().
  LockAttempt wait_until_free(const RunHolder& holder);
  void write_holder();
  void beat();
  /// The current holder; nullopt: none.
  [[nodiscard]] std::optional<RunHolder> read_holder() const;
  /// The current holder if it is another job; then sets lost_.
  [[nodiscard]] std::optional<RunHolder> find_successor();
  [[nodiscard]] std::chrono::nanoseconds last_heartbeat() const;
  /// The file system's time; hosts' clocks may differ by minutes.
  [[nodiscard]] std::chrono::nanoseconds file_system_now() const;
  [[noreturn]] void refuse(const RunHolder& holder) const;
  [[noreturn]] void refuse_unknown() const;

  DirectoryLockOptions options_;
  FilePath lock_;
  std::string taken_over_;
  RunHolder self_;
  Descriptor file_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  ///< guarded by mutex_
  std::atomic<bool> lost_ = false;
  std::atomic<std::chrono::steady_clock::time_point> checked_;  ///< when the file was last read
  std::thread heart_;
};

}  // namespace lockstep
