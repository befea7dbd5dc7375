#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

struct RunDirectoryOptions {
  std::string path;
  std::string job;  ///< what names this job to others, as from job_name()
  std::chrono::milliseconds heartbeat = std::chrono::seconds(15);
  /// A holder on another host whose last heartbeat is older is dead.
  std::chrono::milliseconds stale = std::chrono::seconds(60);
  /// Where file locks do not work: longer than it takes between finding the directory free and
  /// writing to its lock file.
  std::chrono::milliseconds settle = std::chrono::seconds(1);
};

/// "Slurm job 1234" inside one, else "process 5678".
[[nodiscard]] std::string job_name();

/// The directory of one run, held by one live job as long as this object lives. Rank 0's alone.
///
/// The lock is a file `lock` with job, host, process and start, held by flock() and kept fresh by a
/// thread that touches it. Where file locks do not reach across hosts, or do not work at all, the
/// heartbeat alone tells the living from the dead; its age is measured by the file system's clock,
/// so hosts' clocks do not matter.
///
/// A holder that was suspended, or cut off from the file system, may be taken over and come back.
/// So each holder writes a random token to the file and looks for it again: after taking the lock,
/// at each heartbeat, and before whatever it changes under a name that both know.
class RunDirectory final {
 public:
  /// Creates the directory, with `log/` and `checkpoints/`, and takes the lock.
  /// Error(cannot_write), which names the holder's job and host where one is alive. A dead holder's
  /// lock is taken over; this may wait for up to `stale` to learn that a holder on another host is
  /// dead.
  explicit RunDirectory(const RunDirectoryOptions& options);
  ~RunDirectory();
  RunDirectory(RunDirectory&&) noexcept;
  RunDirectory& operator=(RunDirectory&&) noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string checkpoints() const { return path_ + "/checkpoints"; }
  /// The dead holder's "JOB on HOST" that was taken over; empty: none.
  [[nodiscard]] const std::string& taken_over() const noexcept { return taken_over_; }

  /// Error(cannot_write), naming the new holder, where another job holds the directory now; reads
  /// the lock file. Any thread may call this and the two below.
  void require_held() const;
  /// The same as an answer, which reads the file only where nothing has for two heartbeats.
  [[nodiscard]] bool is_held() const;
  /// Whether it is known that another job holds it; reads nothing.
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
