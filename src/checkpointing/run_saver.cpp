#include "lockstep/checkpointing/run_saver.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <fmt/format.h>

#include <utility>

namespace lockstep {
namespace {

TraceRow* phases(const RunSaverParts& parts) noexcept {
  return parts.trace != nullptr ? &parts.trace->phases() : nullptr;
}

bool is_best(const TrainingState& state) noexcept {
  return state.best_step == state.step;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

RunSaver::RunSaver(RunSaverParts parts, Saved saved, const Limits& limits)
    : parts_(std::move(parts)),
      sharded_(parts_.engine.layout().is_sharded()),
      snapshot_({.engine = parts_.engine,
                 .transfer = parts_.transfer,
                 .optimizer = parts_.optimizer,
                 .average = parts_.average},
                parts_.checkpoints != nullptr),
      schedule_(3600 * parts_.config.node_mttf / parts_.nodes, limits.schedule),
      stall_(limits.stall),
      started_step_(saved.step),
      written_best_step_(saved.best_step),
      written_best_top1_(saved.best_top1),
      newest_(std::move(saved.path)) {
  if (parts_.checkpoints == nullptr) return;
  saver_.emplace(*parts_.checkpoints,
                 BackgroundSaver::Hooks{.begin = [this] { become_background_thread(parts_.cores); },
                                        .on_progress =
                                            [this] {
                                              ++moves_;
                                              parts_.board.saver_moved();
                                            }});
}

bool RunSaver::is_due(std::int64_t step, Boundary boundary) const {
  if (!saver_) return false;
  // Request a pending save only when it can start: each request costs a replica check.
  const auto now = std::chrono::steady_clock::now();
  if (!backoff_.may_try(now)) return false;
  if (pending_) return !saver_->busy();
  const SaveInterval& every = parts_.config.save_every;
  if (boundary == Boundary::epoch_end &&
      (!every.automatic || !last_epoch_end_ ||
       seconds_since(*last_epoch_end_) >= schedule_.epoch_end_interval())) {
    return true;
  }
  if (every.steps > 0 && (step + 1) % every.steps == 0) return true;
  const double interval = every.automatic ? schedule_.interval() : every.seconds;
  return interval > 0 && seconds_since(last_start_) >= interval;
}

void RunSaver::want(Boundary boundary) noexcept {
  pending_ = true;
  if (boundary == Boundary::epoch_end) last_epoch_end_ = std::chrono::steady_clock::now();
}

void RunSaver::step_took(double seconds) {
  if (saver_) schedule_.step_took(seconds);
}

bool RunSaver::decide_together(bool mine) {
  if (!sharded_) return mine;
  std::uint8_t decision = mine ? 1 : 0;
  parts_.comm.broadcast(std::span(&decision, 1));
  return decision != 0;
}

void RunSaver::start_pending(const TrainingState& state, double checks) {
  // A best model is copied at once, and written when the pause after a failure is over.
  const bool may_write = backoff_.may_try(std::chrono::steady_clock::now());
  const bool may_copy = is_best(state) || (may_write && !unsaved_best_);
  if (!decide_together(pending_ && may_copy && saver_ && !saver_->busy() &&
                       started_step_ != state.step)) {
    return;
  }
  copy(state);
  if (!saver_) return;
  if (may_write) {
    schedule_.begin(checks + copy_seconds_);
    write();
  } else {
    unsaved_best_ = true;
    started_step_ = -1;
  }
}

void RunSaver::await_writer() {
  const Phase before = parts_.board.read().phase;
  parts_.board.enter(Phase::save);
  finish();
  collect();
  parts_.board.enter(before);
}

void RunSaver::copy(const TrainingState& state) {
  collect();  // the snapshot and the board still describe the last save
  pending_ = false;
  started_step_ = state.step;
  last_start_ = std::chrono::steady_clock::now();
  const TraceSpan span(phases(parts_), "copy for a save");
  const Phase before = parts_.board.read().phase;
  parts_.board.enter(Phase::save);
  parts_.transfer.await_gathers();
  snapshot_.take();
  parts_.board.enter(before);
  if (!saver_) return;
  copy_seconds_ = seconds_since(last_start_);
  unsaved_best_ = false;
  const Config& config = parts_.config;
  copied_ = {.mean = {config.mean.begin(), config.mean.end()},
             .std = {config.std.begin(), config.std.end()},
             .classes = config.classes,
             .class_names = parts_.class_names,
             .image = parts_.image,
             .state = state};
}

void RunSaver::write() {
  const std::int64_t step = copied_.state->step;
  parts_.board.saving(step);
  if (parts_.trace != nullptr) {
    const std::int64_t now = TraceRecorder::now();
    traced_ = {.begin = now,
               .handle = parts_.trace->saves().open_at(now, "save", {{{"step", step}}})};
  }
  ++moves_;
  snapshot_.rewind();
  saver_->start(copied_, [this] { return snapshot_.next(); });
}

void RunSaver::finish() {
  const TraceSpan span(phases(parts_), "wait for a save");
  if (saver_) saver_->wait();
}

std::optional<BackgroundSaver::Outcome> RunSaver::take_outcome() {
  auto outcome = saver_ ? saver_->poll() : std::nullopt;
  if (!outcome) return outcome;
  parts_.board.saving(-1);
  schedule_.end();
  if (parts_.trace != nullptr) {
    const auto nanoseconds = static_cast<std::int64_t>(1e9 * outcome->seconds);
    parts_.trace->saves().close_at(traced_.begin + nanoseconds, traced_.handle);
  }
  parts_.stop_timer.save_took(copy_seconds_ + outcome->seconds);
  parts_.reporter.saved(*outcome);
  if (outcome->error) {
    backoff_.failed(std::chrono::steady_clock::now());
  } else {
    backoff_.succeeded();
    newest_ = outcome->path;
    unsaved_best_ = false;
    written_best_step_ = copied_.state->best_step;
    written_best_top1_ = copied_.state->best_top1;
  }
  if (!outcome->warning.empty() && !std::exchange(warned_of_links_, true)) {
    parts_.reporter.warn(outcome->warning);
  }
  return outcome;
}

void RunSaver::collect() {
  while (const auto outcome = take_outcome()) {
    if (!outcome->error) continue;
    unsaved_best_ = is_best(*copied_.state);
    if (!unsaved_best_) pending_ = true;  // try again at a later step boundary
    started_step_ = -1;
  }
}

void RunSaver::report() {
  collect();
  if (unsaved_best_ && !busy() && backoff_.may_try(std::chrono::steady_clock::now())) write();
  report_stall();
  report_interval();
}

void RunSaver::report_interval() {
  const std::optional<double> cost = schedule_.cost();
  if (!parts_.config.save_every.automatic || !cost) return;
  const double interval = schedule_.interval();
  if (interval < 2 * reported_interval_ && 2 * interval > reported_interval_) return;
  reported_interval_ = interval;
  parts_.reporter.say(
      fmt::format("saves every {:.1f} min (a save delays training by {}; a failure is expected "
                  "every {:.1f} h); set --save-every to choose",
                  interval / 60, time_text(*cost), schedule_.failure_seconds() / 3600));
}

void RunSaver::report_stall() {
  if (!busy()) return;
  const auto waited = stall_.stalled(moves_, std::chrono::steady_clock::now());
  if (!waited) return;
  parts_.reporter.warn(
      fmt::format("checkpoint {} has made no progress for {:.0f} s (its file system may hang); "
                  "training continues without it; check {}",
                  parts_.checkpoints->path_of(copied_.state->step),
                  std::chrono::duration<double>(*waited).count(), parts_.config.run_dir));
}

void RunSaver::save_and_wait(const TrainingState& state) {
  parts_.board.enter(Phase::save);
  finish();
  collect();
  collectively(parts_.comm, [this] {
    if (parts_.directory != nullptr) parts_.directory->require_held();
  });
  const TrainingState last = settle_best(state);
  if (decide_together(saver_ && started_step_ != state.step)) {
    copy(last);
    if (saver_) write();
  }
  finish();
  collectively(parts_.comm, [this] {
    const auto outcome = take_outcome();
    if (outcome && outcome->error) throw Error(ExitStatus::cannot_write, *outcome->error);
  });
}

TrainingState RunSaver::settle_best(TrainingState state) {
  if (!unsaved_best_ || is_best(state)) return state;
  write();
  finish();
  collect();
  if (!unsaved_best_) return state;
  parts_.reporter.warn(fmt::format(
      "the best model, of step {} (top-1 {:.2f} %), could not be saved and is lost; {}",
      state.best_step, 100 * state.best_top1,
      written_best_step_ < 0 ? "no other was evaluated before"
                             : fmt::format("best is that of step {} again", written_best_step_)));
  state.best_step = written_best_step_;
  state.best_top1 = written_best_top1_;
  return state;
}

std::string RunSaver::last_good() {
  parts_.board.enter(Phase::save);
  finish();
  collect();
  return broadcast_text(parts_.comm, newest_);
}

}  // namespace lockstep
