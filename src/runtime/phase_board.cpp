#include "lockstep/runtime/phase_board.hpp"

#include <array>

namespace lockstep {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

bool is_outside_steps(Phase phase) noexcept {
  return phase < Phase::data || phase > Phase::update;
}

}  // namespace

std::string_view to_string(Phase phase) noexcept {
  constexpr std::array names{"start-up", "data",       "forward", "backward", "communication",
                             "update",   "evaluation", "save",    "checks",   "end"};
  const auto index = static_cast<std::size_t>(phase);  // may be of a damaged report
  return index < names.size() ? names[index] : "";
}

void PhaseBoard::enter(Phase phase) noexcept {
  phase_.store(phase, relaxed);
  move();
  if (marks_ != nullptr) marks_->enter(to_string(phase).data(), is_outside_steps(phase));
}

void PhaseBoard::begin_step(std::int64_t step) noexcept {
  if (marks_ != nullptr) marks_->begin_step(step);
  std::int64_t none = 0;
  first_step_.compare_exchange_strong(none, step, relaxed);
  step_.store(step, relaxed);
  started_.store(0, relaxed);
  move();
}

void PhaseBoard::begin_wait(CollectiveKind kind, std::size_t count) noexcept {
  wait_count_.store(count, relaxed);
  waits_in_.store(kind, relaxed);
  // A rank may wait for its device or a message where others do not, as in a save.
  if (kind != CollectiveKind::synchronize && !is_message(kind)) add(collectives_);
  move();
}

void PhaseBoard::end_wait() noexcept {
  waits_in_.store(CollectiveKind::none, relaxed);
  move();
}

std::int32_t PhaseBoard::start_bucket(CollectiveKind kind) noexcept {
  add(collectives_);
  add(started_);
  const std::int32_t bucket = started_.load(relaxed);
  begin_request_wait(kind, bucket);
  if (marks_ != nullptr) marks_->start_bucket(bucket);
  return bucket;
}

void PhaseBoard::begin_request_wait(CollectiveKind kind, std::int32_t bucket) noexcept {
  wait_bucket_.store(bucket, relaxed);
  waits_in_.store(kind, relaxed);
  move();
}

PhaseBoard::Reading PhaseBoard::read() const noexcept {
  Reading reading{.moves = moves_.load(relaxed),
                  .step = step_.load(relaxed),
                  .saving = saving_.load(relaxed),
                  .collectives = collectives_.load(relaxed),
                  .wait_count = wait_count_.load(relaxed),
                  .bucket = 0,
                  .phase = phase_.load(relaxed),
                  .waits_in = waits_in_.load(relaxed),
                  .unhurried = false,
                  .device = device_.read()};
  reading.moves += reading.device.reached + reading.device.completed;
  if (reading.phase == Phase::save) reading.moves += saver_moves_.load(relaxed);
  reading.unhurried = reading.phase == Phase::start_up || reading.step == first_step_.load(relaxed);
  if (is_started(reading.waits_in)) {
    reading.bucket = wait_bucket_.load(relaxed);
  } else if (reading.phase == Phase::backward) {
    reading.bucket = started_.load(relaxed) + 1;
  }
  return reading;
}

}  // namespace lockstep
