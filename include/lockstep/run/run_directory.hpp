#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

struct RunDirectoryOptions {
  std::string path;
  std::string job;  ///< this job's name in messages to other jobs; see job_name()
  std::chrono::milliseconds heartbeat = std::chrono::seconds(15);
  /// A holder on another host counts as dead if its last heartbeat is older.
  std::chrono::milliseconds stale = std::chrono::seconds(60);
  /// Wait after writing the lock file if file locks do not work: must exceed the time between
  /// finding the directory free and writing the file.
  std::chrono::milliseconds settle = std::chrono::seconds(1);
};

/// "Slurm job 1234" inside one, else "process 5678".
[[nodiscard]] std::string job_name();

/// The directory of one run, held by one live job as long as this object lives. Rank 0 only.
///
/// The lock is a file `lock` with job, host, process and start time, held by flock(); a thread
/// touches it as heartbeat. If file locks do not work, or not across hosts, only the heartbeat
/// shows that a holder is alive. The file system's clock measures its age, so hosts' clocks do not
/// matter.
///
/// A holder that was suspended, or cut off from the file system, may come back after a takeover. So
/// each holder writes a random token to the file and checks it after taking the lock, at each
/// heartbeat, and before it changes any file that the new holder also uses.
class RunDirectory final {
 public:
  /// Creates the directory, with `log/` and `checkpoints/`, and takes the lock. Error(cannot_write)
  /// names the job and host of a live holder. Takes over a dead holder's lock; may wait for up to
  /// `stale` to find that a holder on another host is dead.
  explicit RunDirectory(const RunDirectoryOptions& options);
  ~RunDirectory();
  RunDirectory(RunDirectory&&) noexcept;
  RunDirectory& operator=(RunDirectory&&) noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }
  /// "JOB on HOST" of the dead holder that was taken over; empty: none.
  [[nodiscard]] const std::string& taken_over() const noexcept { return taken_over_; }

  /// Error(cannot_write), naming the new holder, if another job holds the directory now; reads the
  /// lock file. Any thread may call this and the two below.
  void require_held() const;
  /// The same check without an error; reads the file only if it was not read for two heartbeats.
  [[nodiscard]] bool is_held() const;
  /// Whether another job is known to hold the directory; does not read the file.
  [[nodiscard]] bool is_lost() const noexcept;

  /// Writes config.ini, atomically. Error(cannot_write).
  void write_config(std::string_view text);

 private:
  class Lock;
  std::string path_;
  std::string taken_over_;
  std::unique_ptr<Lock> lock_;
};

}  // namespace lockstep
