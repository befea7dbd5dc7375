#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/run_holder.hpp"
#include "lockstep/run/run_directory.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace lockstep {

class RunDirectory::Lock final {
 public:
  explicit Lock(const RunDirectoryOptions& options);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  [[nodiscard]] const std::string& taken_over() const noexcept { return taken_over_; }
  /// Reads the file again. Error(cannot_write), naming the new holder, if it is another job's.
  void require_held();
  /// Reads the file again only if the last read was two heartbeats ago or more (a suspension).
  [[nodiscard]] bool is_held();
  [[nodiscard]] bool is_lost() const noexcept { return lost_; }

 private:
  enum class Attempt { got_it, held_by_another, unsupported };

  [[nodiscard]] Attempt try_lock();
  /// Waits, refuses if the holder is alive, and returns the result of the last try_lock().
  Attempt wait_until_free(const RunHolder& holder);
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

  RunDirectoryOptions options_;
  std::string path_;
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
