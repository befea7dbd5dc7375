#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/core/current_error.hpp"

#include <cassert>
#include <chrono>

namespace lockstep {

void BackgroundSaver::save(const CheckpointInfo& info, const NextTensor& next) {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  try {
    if (hooks_.begin) hooks_.begin();
    if (info.state) outcome.step = info.state->step;
    outcome.path = directory_.path_of(outcome.step);
    outcome.warning = directory_.save(info, next, hooks_.on_progress);
  } catch (...) {
    outcome.error = current_error().what();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  {
    const std::lock_guard lock(mutex_);
    outcomes_.push_back(std::move(outcome));
  }
  busy_ = false;
}

void BackgroundSaver::start(CheckpointInfo info, NextTensor next) {
  assert(!busy());
  wait();
  busy_ = true;
  worker_ =
      std::thread([this, info = std::move(info), next = std::move(next)] { save(info, next); });
}

std::optional<BackgroundSaver::Outcome> BackgroundSaver::poll() {
  const std::lock_guard lock(mutex_);
  if (outcomes_.empty()) return std::nullopt;
  std::optional<Outcome> outcome = std::move(outcomes_.front());
  outcomes_.pop_front();
  return outcome;
}

void BackgroundSaver::wait() {
  if (worker_.joinable()) worker_.join();
}

}  // namespace lockstep
