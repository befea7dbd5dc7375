#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/file_path.hpp"

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {

/// The checkpoint that `latest` of such a directory names; empty: none.
[[nodiscard]] std::string latest_checkpoint(const FilePath& directory);

/// `checkpoints/` of a run: step-00012345.h5 files, and `latest` and `best` (core/file_link.hpp),
/// replaced atomically. Used on rank 0 only.
class CheckpointDirectory final {
 public:
  /// Creates the directory and removes temporary files of killed writers. Error(cannot_write).
  /// Calls `before_change` (may be empty) on the saving thread before each change of a published
  /// name; if it throws, the name does not change. `keep` <= 0 keeps all files.
  explicit CheckpointDirectory(FilePath path, std::int64_t keep,
                               std::function<void()> before_change = {});

  [[nodiscard]] std::string path_of(std::int64_t step) const { return file(step).text(); }
  /// Steps of the published files, newest first.
  [[nodiscard]] std::vector<std::int64_t> steps() const;

  /// Writes the file, updates `latest` (and `best` if state.best_step == state.step), and removes
  /// old files except the `keep` newest and the best by validation top-1. Once the file is written,
  /// only `before_change` makes it fail. A warning if `latest` or `best` is no symbolic link;
  /// empty: none.
  std::string save(const CheckpointInfo& info, const NextTensor& next,
                   const std::function<void()>& on_progress = {});

  struct Found {
    CheckpointReader reader;
    std::string path;
    std::vector<std::string>
        rejected;  ///< one line per newer file that did not verify; the files stay
  };
  /// The newest file that verifies; nullopt if there are no files; Error(bad_input) naming all
  /// files if none verifies.
  [[nodiscard]] std::optional<Found> newest() const;

 private:
  [[nodiscard]] FilePath file(std::int64_t step) const;
  std::string link(const char* name, std::int64_t step);

  FilePath path_;
  std::int64_t keep_;
  std::function<void()> before_change_;
};

/// Saves on a separate thread, one save at a time. Used on rank 0 only.
class BackgroundSaver final {
 public:
  /// Called on the saving thread; any may be empty.
  struct Hooks {
    std::function<void()> begin;        ///< before each save
    std::function<void()> on_progress;  ///< see WriteHooks
  };
  explicit BackgroundSaver(CheckpointDirectory& directory, Hooks hooks = {})
      : directory_(directory), hooks_(std::move(hooks)) {}
  ~BackgroundSaver() { wait(); }
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  [[nodiscard]] bool busy() const noexcept { return busy_; }
  /// Returns at once; calls `next` on the saving thread. Precondition: busy() is false.
  void start(CheckpointInfo info, NextTensor next);
  struct Outcome {
    std::int64_t step = 0;
    std::string path;
    double seconds = 0;
    std::optional<std::string> error;  ///< nullopt: the save succeeded
    std::string warning = {};          ///< of CheckpointDirectory::save(); empty: none
  };
  /// Returns each finished save's outcome once; nullopt if there is none.
  [[nodiscard]] std::optional<Outcome> poll();
  /// Waits for the running save; poll() then returns its outcome.
  void wait();

 private:
  void save(const CheckpointInfo& info, const NextTensor& next);

  CheckpointDirectory& directory_;
  Hooks hooks_;
  std::atomic<bool> busy_ = false;
  std::mutex mutex_;
  std::deque<Outcome> outcomes_;  ///< guarded by mutex_
  std::thread worker_;
};

}  // namespace lockstep
