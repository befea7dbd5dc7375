#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// `checkpoints/` of a run: step-00012345.h5 files, `latest` and `best` (links, replaced
/// atomically). Rank 0's alone.
class CheckpointDirectory final {
 public:
  /// Creates it; removes temporary files that a killed writer left. Error(cannot_write).
  /// `before_change`, which may be empty, is called before each change of a published name, on the
  /// saving thread; where it throws, nothing changes.
  explicit CheckpointDirectory(std::string path, std::int64_t keep,
                               std::function<void()> before_change = {});

  [[nodiscard]] std::string path_of(std::int64_t step) const;
  /// Steps of the published files, newest first.
  [[nodiscard]] std::vector<std::int64_t> steps() const;

  /// Writes, publishes `latest` (and `best` where state.best_step == state.step) and drops what
  /// retention does not keep: the `keep` newest and the best by validation top-1 stay.
  void save(const CheckpointInfo& info, const NextTensor& next,
            const std::function<void()>& on_piece = {});

  struct Found {
    CheckpointReader reader;
    std::string path;
    std::vector<std::string>
        rejected;  ///< one line a newer file that did not verify; left in place
  };
  /// The newest that verifies; nullopt where there is none at all; Error(bad_input) naming all of
  /// them where files are there and none verifies.
  [[nodiscard]] std::optional<Found> newest() const;

 private:
  std::string path_;
  std::int64_t keep_;
  std::function<void()> before_change_;
};

/// Saves on a thread of its own, one at a time. Rank 0's alone.
class BackgroundSaver final {
 public:
  /// What is called on the thread; any may be empty.
  struct Hooks {
    std::function<void()> begin;     ///< before each save
    std::function<void()> on_piece;  ///< as write_checkpoint() says
  };
  explicit BackgroundSaver(CheckpointDirectory& directory, Hooks hooks = {});
  ~BackgroundSaver();
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;

  [[nodiscard]] bool busy() const noexcept;
  /// Returns at once; `next` is called on the thread. The caller sees to it that busy() is false.
  void start(CheckpointInfo info, NextTensor next);
  struct Outcome {
    std::int64_t step = 0;
    std::string path;
    double seconds = 0;
    std::optional<std::string> error;  ///< why it failed
  };
  /// The outcome of a finished save, once each; nullopt while there is none.
  [[nodiscard]] std::optional<Outcome> poll();
  /// Waits for the save under way; its outcome comes by poll().
  void wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
