#include "lockstep/train/training_loop.hpp"

#include "lockstep/runtime/signals.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "straggler_watch.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

namespace lockstep {
namespace {

std::int64_t evaluation_interval(const RunPlan& plan, const BatchGeometry& geometry) {
  if (plan.config.eval_every <= 0) return 0;
  const double steps = plan.config.eval_every * static_cast<double>(geometry.steps_per_epoch());
  return std::max<std::int64_t>(1, std::llround(steps));
}

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

TrainingLoop::TrainingLoop(const TrainingLoopParts& parts, TrainingState state,
                           std::int64_t last_step)
    : parts_(parts),
      state_(std::move(state)),
      last_step_(last_step),
      eval_interval_(parts.evaluator == nullptr ? 0
                                                : evaluation_interval(parts.plan, parts.geometry)),
      schedule_(parts.plan.config, parts.geometry.epoch_samples(), parts.geometry.global_batch),
      shared_out_(parts.parallel.sum_over_parts() != nullptr),
      snapshot_(parts.engine, parts.parallel, parts.optimizer, parts.checkpoints != nullptr),
      saved_step_(state_.step),
      stragglers_(std::make_unique<StragglerWatch>(
          parts.comm, StragglerWatch::Options{.factor = parts.plan.config.straggler_factor,
                                              .hosts = parts.hosts})) {
  if (parts_.plan.config.check_replicas_every > 0) {
    replica_check_.emplace(parts_.engine, parts_.comm, parts_.hosts,
                           KeptParts{.state = &parts_.parallel, .ranks = parts_.sharing});
  }
  if (parts_.checkpoints != nullptr) {
    saver_.emplace(
        *parts_.checkpoints,
        BackgroundSaver::Hooks{.begin = [this] { become_background_thread(parts_.cores); },
                               .on_piece = [this] { parts_.board.saver_moved(); }});
  }
}

TrainingLoop::~TrainingLoop() {
  snapshot_.give_up();
}

TraceRow* TrainingLoop::phases() noexcept {
  return parts_.trace != nullptr ? &parts_.trace->phases() : nullptr;
}

bool TrainingLoop::finished() const noexcept {
  return state_.step >= last_step_;
}

TrainingResult TrainingLoop::run() {
  // Evaluation of a step that the last run could not finish.
  bool stop = !evaluate_if_due();
  step_end_ = std::chrono::steady_clock::now();
  while (!finished() && !stop) {
    if (parts_.trace != nullptr) parts_.trace->step_begins(state_.step + 1);
    const double lr = schedule_.lr(state_.samples);
    const StepResult step =
        parts_.step.run(state_.step + 1, lr,
                        {.stop = stop_due(),
                         .save = parts_.checkpoints != nullptr && save_due(),
                         .pieces = saver_ && saver_->busy() ? snapshot_.wanted() : 0});
    snapshot_.deliver(step.sums.pieces);
    check_finite(step);
    keep_loss_scale();
    if (step.updated) advance(step, lr);

    if (step.sums.failed > 0) {
      check_replicas(true);
      save_and_wait();
      collectively(parts_.comm, [this] {
        if (parts_.step.data_error()) throw Error(*parts_.step.data_error());
      });
    }
    check_replicas(step.sums.stop_wishes + step.sums.save_wishes > 0 || state_.position == 0 ||
                   finished());
    stop = step.sums.stop_wishes > 0 || !evaluate_if_due();
    // What a new best model or a stop amid the evaluation brings about is another save.
    check_replicas(stop || state_.best_step == state_.step);
    const bool may_save =
        step.sums.save_wishes > 0 || state_.position == 0 || state_.best_step == state_.step;
    save_pending_ = save_pending_ || step.sums.save_wishes > 0 || state_.position == 0;
    if (may_save && !stop && !finished()) start_pending_save();
    report_saves();
    if (parts_.between_steps) parts_.between_steps();
    if (parts_.trace != nullptr && !stop && !finished() && parts_.trace->step_ended(state_.step)) {
      step_end_ = std::chrono::steady_clock::now();
    }
  }
  save_and_wait();
  if (parts_.trace != nullptr) parts_.trace->run_ends(state_.step);
  parts_.board.enter(Phase::end);
  result_.status = finished() ? ExitStatus::ok : ExitStatus::stopped;
  result_.step = state_.step;
  stragglers_->close_run(parts_.reporter);
  parts_.reporter.stopped(state_.step, state_.epoch,
                          finished()     ? "finished"
                          : out_of_time_ ? "stopped before the time limit"
                                         : "stopped on request");
  return result_;
}

void TrainingLoop::advance(const StepResult& result, double lr) {
  const std::int64_t batch = parts_.geometry.global_batch;
  const std::int64_t epoch = state_.epoch;
  const std::int64_t step_of_epoch = state_.position / batch + 1;
  ++state_.step;
  state_.samples += batch;
  if (result.sums.not_finite == 0) {
    state_.epoch_loss += result.sums.loss * static_cast<double>(batch);
    state_.epoch_top1 += result.sums.top1;
    state_.epoch_top5 += result.sums.top5;
    state_.epoch_samples += static_cast<double>(batch);
  }
  const EpochPosition next =
      next_position(parts_.geometry, {.epoch = state_.epoch, .position = state_.position});

  const auto now = std::chrono::steady_clock::now();
  const double seconds = seconds_between(step_end_, now);
  step_end_ = now;
  epoch_times_ += result.times;
  stragglers_->add(result.times);
  parts_.stop_timer.step_took(seconds);
  epoch_seconds_ += seconds;
  own_loss_ += result.own_loss;
  own_samples_ += result.own_samples;
  parts_.reporter.step({.step = state_.step,
                        .epoch = epoch,
                        .step_of_epoch = step_of_epoch,
                        .samples = state_.samples,
                        .loss = result.sums.loss,
                        .top1 = result.sums.top1 / static_cast<double>(batch),
                        .top5 = result.sums.top5 / static_cast<double>(batch),
                        .lr = lr,
                        .gradient_norm = result.gradient_norm,
                        .times = result.times,
                        .images_per_second = static_cast<double>(batch) / seconds});
  if (next.epoch != epoch) close_epoch(lr);
  state_.epoch = next.epoch;
  state_.position = next.position;
}

void TrainingLoop::close_epoch(double lr) {
  parts_.reporter.epoch({.step = state_.step,
                         .epoch = state_.epoch,
                         .samples = state_.samples,
                         .loss = state_.epoch_loss / std::max(state_.epoch_samples, 1.0),
                         .top1 = state_.epoch_top1 / std::max(state_.epoch_samples, 1.0),
                         .top5 = state_.epoch_top5 / std::max(state_.epoch_samples, 1.0),
                         .lr = lr,
                         .own_loss = own_loss_ / std::max(own_samples_, 1.0),
                         .own_samples = own_samples_,
                         .seconds = epoch_seconds_,
                         .images_per_second = state_.epoch_samples / std::max(epoch_seconds_, 1e-9),
                         .times = epoch_times_});
  parts_.board.enter(Phase::checks);
  stragglers_->close_epoch(state_.step, state_.epoch, parts_.reporter);
  state_.epoch_loss = state_.epoch_top1 = state_.epoch_top5 = state_.epoch_samples = 0;
  epoch_times_ = {};
  epoch_seconds_ = own_loss_ = own_samples_ = 0;
}

void TrainingLoop::check_replicas(bool must) {
  if (!replica_check_ || checked_step_ == state_.step) return;
  if (!must && state_.step % parts_.plan.config.check_replicas_every != 0) return;
  parts_.board.enter(Phase::checks);
  const TraceSpan span(phases(), "replica check");
  checked_step_ = state_.step;
  parts_.parallel.settle();
  replica_check_->run(state_.step);
}

bool TrainingLoop::stop_due() noexcept {
  if (SignalFlag::received() != 0) return true;
  const bool saving = saver_ && saver_->busy();
  out_of_time_ = parts_.stop_timer.is_due(StopTimer::Clock::now(), saving);
  return out_of_time_;
}

void TrainingLoop::keep_loss_scale() {
  const auto& scale = parts_.step.loss_scaler().state();
  if (!scale) return;
  state_.loss_scale = scale->scale;
  state_.loss_scale_good_steps = scale->good_steps;
  state_.skipped_steps = scale->skipped_steps;
}

void TrainingLoop::check_scale(const StepResult& result) {
  const double scale = parts_.step.loss_scaler().scale();
  if (!result.overflowed || scale >= 1) return;
  const std::string checkpoint = last_good_checkpoint();
  parts_.reporter.stopped(state_.step + 1, state_.epoch, "diverged");
  fail(ExitStatus::diverged,
       "the gradients overflow fp16 at step {} with a loss scale of {} (training diverged; last "
       "good checkpoint: {}) lower --lr, lengthen --warmup-epochs or take --precision bf16",
       state_.step + 1, 2 * scale, checkpoint.empty() ? "none" : checkpoint);
}

void TrainingLoop::check_finite(const StepResult& result) {
  // With loss scaling such a step is skipped, and tried with a smaller scale.
  if (parts_.step.loss_scaler().is_dynamic()) return check_scale(result);
  if (result.sums.not_finite == 0) return;
  const std::string checkpoint = last_good_checkpoint();
  const std::int64_t step = state_.step + 1;
  parts_.reporter.stopped(step, state_.epoch, "diverged");
  collectively(parts_.comm, [&] {
    if (!std::isfinite(result.own_loss)) {
      fail(ExitStatus::diverged,
           "the loss is {} at step {} on rank {} (training diverged; last good checkpoint: {}) "
           "lower --lr, lengthen --warmup-epochs or set --clip-grad-norm",
           result.own_loss, step, parts_.comm.rank(), checkpoint.empty() ? "none" : checkpoint);
    }
  });
}

bool TrainingLoop::evaluate_if_due() {
  if (eval_interval_ == 0 || state_.step == 0 || state_.last_eval_step == state_.step) return true;
  // The end by --max-steps is a pause: evaluating there would change a later continuation's record.
  const bool all_epochs_done = state_.epoch >= parts_.plan.config.epochs;
  if (state_.step % eval_interval_ != 0 && !all_epochs_done) return true;
  parts_.parallel.settle();
  const TraceSpan span(phases(), "evaluation");
  const std::optional<EvaluationResult> evaluation =
      parts_.evaluator->run([this] { return stop_due(); });
  if (!evaluation) return false;
  state_.last_eval_step = state_.step;
  if (evaluation->top1 > state_.best_top1) {
    state_.best_top1 = evaluation->top1;
    state_.best_step = state_.step;
    save_pending_ = true;
  }
  // An epoch is over where its last step has just been taken.
  const std::int64_t epoch = state_.position == 0 ? state_.epoch - 1 : state_.epoch;
  parts_.reporter.evaluation(state_.step, epoch, *evaluation);
  result_.evaluation = evaluation;
  step_end_ = std::chrono::steady_clock::now();
  return true;
}

bool TrainingLoop::save_due() const noexcept {
  // One that had to wait needs a wish of its own, so that the replicas are checked before it.
  if (save_pending_ && !saver_->busy()) return true;
  const SaveInterval& every = parts_.plan.config.save_every;
  // The wish reaches the boundary of the step that is about to begin.
  if (every.steps > 0 && (state_.step + 1) % every.steps == 0) return true;
  return every.seconds > 0 &&
         seconds_between(last_save_, std::chrono::steady_clock::now()) >= every.seconds;
}

bool TrainingLoop::decided(bool mine) {
  if (!shared_out_) return mine;
  std::uint8_t decision = mine ? 1 : 0;
  parts_.comm.broadcast(std::span(&decision, 1));
  return decision != 0;
}

void TrainingLoop::start_pending_save() {
  const bool checked = !replica_check_ || checked_step_ == state_.step;
  if (decided(save_pending_ && saver_ && !saver_->busy() && saved_step_ != state_.step &&
              checked)) {
    start_save();
  }
}

void TrainingLoop::start_save() {
  save_pending_ = false;
  saved_step_ = state_.step;
  last_save_ = std::chrono::steady_clock::now();
  if (saver_) parts_.board.saving(state_.step);
  {
    const TraceSpan span(phases(), "copy for a save");
    parts_.parallel.settle();
    snapshot_.take();
  }
  if (!saver_) return;
  if (parts_.trace != nullptr) {
    const std::int64_t now = TraceRecorder::now();
    traced_saves_.push_back(
        {.begin = now,
         .handle = parts_.trace->saves().open_at(now, "save", {{{"step", state_.step}}})});
  }
  saver_->start({.mean = {parts_.plan.config.mean.begin(), parts_.plan.config.mean.end()},
                 .std = {parts_.plan.config.std.begin(), parts_.plan.config.std.end()},
                 .classes = parts_.plan.config.classes,
                 .class_names = parts_.class_names,
                 .state = state_},
                [this] { return snapshot_.next(); });
}

void TrainingLoop::finish_save() {
  const TraceSpan span(phases(), "wait for a save");
  for (bool going = shared_out_; going;) {
    std::int32_t pieces = 0;
    while (saver_ && saver_->busy() && (pieces = snapshot_.wanted()) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    parts_.comm.broadcast(std::span(&pieces, 1));
    snapshot_.deliver(pieces);
    going = pieces > 0;
  }
  if (saver_) saver_->wait();
}

void TrainingLoop::report_saves() {
  while (const auto outcome = finished_save()) {
    if (!outcome->error) continue;
    save_pending_ = true;  // the next boundary tries again
    saved_step_ = -1;
  }
}

std::optional<BackgroundSaver::Outcome> TrainingLoop::finished_save() {
  auto outcome = saver_ ? saver_->poll() : std::nullopt;
  if (!outcome) return outcome;
  parts_.board.saving(-1);
  if (parts_.trace != nullptr) {
    const TracedSave& save = traced_saves_.front();
    parts_.trace->saves().close_at(save.begin + static_cast<std::int64_t>(1e9 * outcome->seconds),
                                   save.handle);
    traced_saves_.pop_front();
  }
  parts_.stop_timer.save_took(outcome->seconds);
  parts_.reporter.saved(*outcome);
  if (!outcome->error) result_.checkpoint = outcome->path;
  return outcome;
}

void TrainingLoop::save_and_wait() {
  parts_.board.enter(Phase::save);
  finish_save();
  report_saves();
  if (decided(saver_ && saved_step_ != state_.step)) start_save();
  finish_save();
  collectively(parts_.comm, [this] {
    if (!saver_) return;
    const auto outcome = finished_save();
    if (outcome && outcome->error) throw Error(ExitStatus::cannot_write, *outcome->error);
  });
}

std::string TrainingLoop::last_good_checkpoint() {
  parts_.board.enter(Phase::save);
  finish_save();
  report_saves();
  return broadcast_text(parts_.comm, result_.checkpoint);
}

}  // namespace lockstep
