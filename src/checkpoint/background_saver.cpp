#include "lockstep/checkpoint/checkpoint_directory.hpp"

#include <atomic>
#include <cassert>
#include <deque>
#include <mutex>
#include <thread>

namespace lockstep {

struct BackgroundSaver::State {
  State(CheckpointDirectory& target, std::function<void()> piece)
      : directory(target), on_piece(std::move(piece)) {}

  void save(const std::function<Checkpoint()>& make) {
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome;
    try {
      const Checkpoint checkpoint = make();
      if (checkpoint.state) outcome.step = checkpoint.state->step;
      outcome.path = directory.path_of(outcome.step);
      directory.save(checkpoint, on_piece);
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
    outcome.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    {
      const std::lock_guard lock(mutex);
      outcomes.push_back(std::move(outcome));
    }
    busy = false;
  }

  CheckpointDirectory& directory;
  std::function<void()> on_piece;
  std::atomic<bool> busy = false;
  std::mutex mutex;
  std::deque<Outcome> outcomes;  ///< guarded by mutex
  std::thread worker;
};

BackgroundSaver::BackgroundSaver(CheckpointDirectory& directory, std::function<void()> on_piece)
    : state_(std::make_unique<State>(directory, std::move(on_piece))) {}

BackgroundSaver::~BackgroundSaver() {
  wait();
}

bool BackgroundSaver::busy() const noexcept {
  return state_->busy;
}

void BackgroundSaver::start(std::function<Checkpoint()> make) {
  assert(!busy());
  wait();
  state_->busy = true;
  state_->worker =
      std::thread([state = state_.get(), make = std::move(make)] { state->save(make); });
}

std::optional<BackgroundSaver::Outcome> BackgroundSaver::poll() {
  const std::lock_guard lock(state_->mutex);
  if (state_->outcomes.empty()) return std::nullopt;
  std::optional<Outcome> outcome = std::move(state_->outcomes.front());
  state_->outcomes.pop_front();
  return outcome;
}

void BackgroundSaver::wait() {
  if (state_->worker.joinable()) state_->worker.join();
}

}  // namespace lockstep
