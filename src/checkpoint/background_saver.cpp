#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/core/current_error.hpp"

#include <atomic>
#include <cassert>
#include <deque>
#include <mutex>
#include <thread>

namespace lockstep {

struct BackgroundSaver::State {
  State(CheckpointDirectory& target, Hooks called) : directory(target), hooks(std::move(called)) {}

  void save(const CheckpointInfo& info, const NextTensor& next) {
    const auto begin = std::chrono::steady_clock::now();
    Outcome outcome;
    try {
      if (hooks.begin) hooks.begin();
      if (info.state) outcome.step = info.state->step;
      outcome.path = directory.path_of(outcome.step);
      outcome.warning = directory.save(info, next, hooks.on_progress);
    } catch (...) {
      outcome.error = current_error().what();
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
  Hooks hooks;
  std::atomic<bool> busy = false;
  std::mutex mutex;
  std::deque<Outcome> outcomes;  ///< guarded by mutex
  std::thread worker;
};

BackgroundSaver::BackgroundSaver(CheckpointDirectory& directory, Hooks hooks)
    : state_(std::make_unique<State>(directory, std::move(hooks))) {}

BackgroundSaver::~BackgroundSaver() {
  wait();
}

bool BackgroundSaver::busy() const noexcept {
  return state_->busy;
}

void BackgroundSaver::start(CheckpointInfo info, NextTensor next) {
  assert(!busy());
  wait();
  state_->busy = true;
  state_->worker = std::thread([state = state_.get(), info = std::move(info),
                                next = std::move(next)] { state->save(info, next); });
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
