#include "training_loop.hpp"

#include "lockstep/core/exit_advice.hpp"
#include "lockstep/core/log_words.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/health/host_list.hpp"
#include "lockstep/runtime/signals.hpp"
#include "run_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

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
      eval_interval_(
          parts.evaluator == nullptr ? 0 : evaluation_interval(parts.plan.config, parts.geometry)),
      schedule_(parts.plan.config, parts.geometry.epoch_samples(), parts.geometry.global_batch),
      ema_schedule_(parts.plan.config, parts.geometry.epoch_samples(), parts.geometry.global_batch),
      stragglers_(parts.comm,
                  {.factor = parts.plan.config.straggler_factor, .hosts = parts.hosts}) {
  if (parts_.plan.config.check_replicas_every > 0) {
    replica_check_.emplace(parts_.engine, parts_.comm, parts_.hosts,
                           KeptShard{.sync = &parts_.parallel, .ranks = parts_.shard_group});
  }
}

TraceRow* TrainingLoop::phases() noexcept {
  return parts_.trace != nullptr ? &parts_.trace->phases() : nullptr;
}

bool TrainingLoop::finished() const noexcept {
  return state_.step >= last_step_;
}

TrainingResult TrainingLoop::run() {
  // A resumed run repeats an evaluation that a stop cut short.
  const std::int64_t last_eval_step = state_.last_eval_step;
  bool stop = !evaluate_if_due();
  if (finished() && state_.last_eval_step != last_eval_step) parts_.saver.save_again();
  step_end_ = std::chrono::steady_clock::now();
  while (!finished() && !stop) {
    if (parts_.trace != nullptr && parts_.trace->step_begins(state_.step + 1)) {
      step_end_ = std::chrono::steady_clock::now();
    }
    const double lr = schedule_.lr(state_.samples);
    const Boundary boundary = next_boundary();
    const StepSync sync = step_sync(parts_.plan.config, parts_.geometry, state_, state_.step + 1);
    const std::int64_t update = parts_.steps.step().loss_scaler().updates(state_.step + 1);
    const StepResult step = parts_.steps.step().run(
        {.number = state_.step + 1,
         .lr = lr,
         .ema_decay = ema_schedule_.decay(update, state_.samples)},
        {.requests = requests(sync, boundary), .next = next_action(state_.step + 1), .sync = sync});
    parts_.saver.step_took(step.times.total());
    checks_seconds_ = 0;
    check_finite(step);
    keep_loss_scale();
    if (step.updated) {
      advance(step, lr);
      replicas_equal_ = sync != StepSync::local;
    }
    if (step.sums.failed > 0) leave_with_data_error();
    const bool resizes =
        parts_.steps.change_at({.epoch = state_.epoch, .position = state_.position});
    const bool is_due = step.sums.save_requests > 0 || resizes;
    if (boundary == Boundary::epoch_end && (is_due || finished())) compare_ranks();
    // A save follows a request, a change of size and the end of the run.
    check_replicas(step.sums.stop_requests > 0 || is_due || finished());
    stop = step.sums.stop_requests > 0 || !evaluate_if_due();
    // A new best model, or a stop during evaluation, triggers another save.
    check_replicas(stop || state_.best_step == state_.step);
    if (is_due) parts_.saver.want(boundary);
    const bool is_best = state_.best_step == state_.step;
    if ((is_due || is_best) && !stop && !finished()) {
      // The next step changes the weights of a new best model, and a new size may fail.
      if (is_best || resizes) parts_.saver.await_writer();
      parts_.saver.start_pending(state_, checks_seconds_);
    }
    if (resizes && !stop && !finished()) change_size();
    parts_.saver.report();
    if (parts_.between_steps) parts_.between_steps();
    if (parts_.trace != nullptr && !stop && !finished() && parts_.trace->step_ended(state_.step)) {
      step_end_ = std::chrono::steady_clock::now();
    }
  }
  end_run();
  return result_;
}

StepRequests TrainingLoop::requests(StepSync sync, Boundary boundary) {
  const bool save = parts_.saver.is_due(state_.step, boundary);
  if (sync == StepSync::local) {
    if (save) parts_.saver.want();  // an epoch's last step is not local
    return {};
  }
  return {.stop = stop_due(state_.step + 1), .save = save};
}

void TrainingLoop::leave_with_data_error() {
  if (replicas_equal_) {
    check_replicas(true);
    parts_.saver.save_and_wait(state_);
  } else {
    const std::string checkpoint = parts_.saver.last_good();
    parts_.reporter.warn(fmt::format(
        "step {} is not saved (the replicas of local SGD differ); newest checkpoint: {}",
        state_.step, checkpoint.empty() ? "none" : checkpoint));
  }
  try {
    collectively(parts_.comm, [this] {
      if (parts_.steps.step().data_error()) throw Error(*parts_.steps.step().data_error());
    });
  } catch (const Error& error) {
    if (error.status() == ExitStatus::stopped) {
      parts_.reporter.stopped(state_.step, state_.epoch,
                              std::string(log_words::stopped_on_request));
    }
    throw;
  }
}

void TrainingLoop::end_run() {
  parts_.saver.save_and_wait(state_);
  parts_.parallel.await_gathers();
  if (parts_.trace != nullptr) parts_.trace->run_ends(state_.step);
  parts_.board.enter(Phase::end);
  const bool complete = finished() && !evaluation_was_stopped_;
  result_.status = complete ? ExitStatus::ok : ExitStatus::stopped;
  result_.step = state_.step;
  result_.run_dir = parts_.plan.config.run_dir;
  result_.checkpoint = parts_.saver.newest();
  if (!stragglers_.slow_hosts().empty()) {
    parts_.reporter.say(
        fmt::format("slow hosts of this run: --exclude={}", host_list(stragglers_.slow_hosts())));
  }
  parts_.reporter.stopped(state_.step, state_.epoch,
                          std::string(complete       ? log_words::finished
                                      : out_of_time_ ? log_words::stopped_in_time
                                                     : log_words::stopped_on_request));
  if (!complete) parts_.reporter.say(advice_after(ExitStatus::stopped));
}

Boundary TrainingLoop::next_boundary() const noexcept {
  const EpochPosition next =
      next_position(parts_.geometry, {.epoch = state_.epoch, .position = state_.position});
  return next.epoch != state_.epoch ? Boundary::epoch_end : Boundary::step;
}

NextAction TrainingLoop::next_action(std::int64_t step) const noexcept {
  const bool evaluates = eval_interval_ != 0 && step % eval_interval_ == 0;
  const bool writes_trace = parts_.trace != nullptr && parts_.trace->is_edge(step);
  const bool ends = step >= parts_.steps.last_step();
  return evaluates || writes_trace || ends ? NextAction::other : NextAction::step;
}

void TrainingLoop::advance(const StepResult& result, double lr) {
  const std::int64_t batch = parts_.geometry.global_batch;
  const std::int64_t epoch = state_.epoch;
  const std::int64_t step_of_epoch = state_.position / batch + 1;
  ++state_.step;
  state_.samples += batch;
  if (result.sums.not_finite == 0) {
    state_.epoch_loss += result.sums.loss * static_cast<double>(batch);
    state_.epoch_metrics += result.sums.metrics;
    state_.epoch_samples += static_cast<double>(batch);
  }
  const EpochPosition next =
      next_position(parts_.geometry, {.epoch = state_.epoch, .position = state_.position});

  const auto now = std::chrono::steady_clock::now();
  const double seconds = seconds_between(step_end_, now);
  step_end_ = now;
  epoch_times_ += result.times;
  stragglers_.add(result.times);
  if (const auto rates = feeding_.add(result.times, result.own_samples)) {
    parts_.reporter.warn(fmt::format(
        "the loader feeds {:.0f} images/s to this rank, which can train on {:.0f} (it waits for "
        "data {:.0f} % of the time); raise --loader-threads, now {}, or see lockstep bench loader",
        rates->loaded, rates->computed, 100 * rates->share, parts_.loader_threads));
  }
  parts_.stop_timer.step_took(seconds);
  epoch_seconds_ += seconds;
  own_loss_ += result.own_loss;
  own_samples_ += result.own_samples;
  parts_.reporter.step({.step = state_.step,
                        .epoch = epoch,
                        .step_of_epoch = step_of_epoch,
                        .samples = state_.samples,
                        .loss = result.sums.loss,
                        .metrics = result.sums.metrics / static_cast<double>(batch),
                        .lr = lr,
                        .gradient_norm = result.gradient_norm,
                        .times = result.times,
                        .images_per_second = static_cast<double>(batch) / seconds});
  if (next.epoch != epoch) close_epoch(lr);
  state_.epoch = next.epoch;
  state_.position = next.position;
}

void TrainingLoop::report_decoding() {
  const DeviceDecoding* const decoding = parts_.engine.input_format().decoding;
  if (decoding == nullptr || std::exchange(decoding_reported_, true)) return;
  const auto [device, host] = decoding->counts();
  if (host == 0) return;
  parts_.reporter.say(fmt::format(
      "images so far: {} of rank 0's {} were decoded by its loader, not by nvJPEG (grey, CMYK, "
      "progressive or unusual files)",
      host, device + host));
}

void TrainingLoop::close_epoch(double lr) {
  report_decoding();
  parts_.reporter.epoch({.step = state_.step,
                         .epoch = state_.epoch,
                         .samples = state_.samples,
                         .loss = state_.epoch_loss / std::max(state_.epoch_samples, 1.0),
                         .metrics = state_.epoch_metrics / std::max(state_.epoch_samples, 1.0),
                         .lr = lr,
                         .own_loss = own_loss_ / std::max(own_samples_, 1.0),
                         .own_samples = own_samples_,
                         .seconds = epoch_seconds_,
                         .images_per_second = state_.epoch_samples / std::max(epoch_seconds_, 1e-9),
                         .times = epoch_times_});
  state_.epoch_loss = state_.epoch_samples = 0;
  state_.epoch_metrics = {};
  epoch_times_ = {};
  epoch_seconds_ = own_loss_ = own_samples_ = 0;
}

void TrainingLoop::compare_ranks() {
  parts_.board.enter(Phase::checks);
  const auto begin = std::chrono::steady_clock::now();
  const std::int64_t epoch = state_.epoch - 1;  // the one that has ended
  const RankTimes mine = stragglers_.take();
  parts_.reporter.note(fmt::format("epoch {}: {}", epoch + 1, to_string(mine)));
  for (const StragglerReport& slow : stragglers_.compare(mine, state_.step, epoch)) {
    parts_.reporter.straggler(slow);
  }
  checks_seconds_ += seconds_between(begin, std::chrono::steady_clock::now());
}

void TrainingLoop::change_size() {
  parts_.saver.await_writer();  // the epoch's checkpoint is complete if the new size fails
  parts_.parallel.await_gathers();
  parts_.board.enter(Phase::start_up);
  parts_.steps.change(state_);
  parts_.reporter.say(parts_.steps.description());
  step_end_ = std::chrono::steady_clock::now();
}

void TrainingLoop::check_replicas(bool must) {
  if (!replica_check_ || checked_step_ == state_.step) return;
  check_is_due_ |= must || state_.step % parts_.plan.config.check_replicas_every == 0;
  if (!check_is_due_ || !replicas_equal_) return;
  check_is_due_ = false;
  parts_.board.enter(Phase::checks);
  const TraceSpan span(phases(), "replica check");
  checked_step_ = state_.step;
  const auto begin = std::chrono::steady_clock::now();
  parts_.parallel.await_gathers();
  const std::optional<Error> drift = replica_check_->run(state_.step);
  checks_seconds_ += seconds_between(begin, std::chrono::steady_clock::now());
  if (!drift) return;
  // A checkpoint still being written holds an earlier state, which was checked: let it finish.
  static_cast<void>(parts_.saver.last_good());
  throw Error(*drift);
}

bool TrainingLoop::stop_due(std::int64_t step) {
  if (SignalFlag::received() != 0) return true;
  // If the directory is lost, stop: the last save then reports it on all ranks.
  if (parts_.directory != nullptr && parts_.directory->is_lost()) return true;
  const std::int64_t next =
      std::min(next_equal_step(parts_.plan.config, parts_.geometry, state_, step + 1), last_step_);
  const auto now = StopTimer::Clock::now();
  const StopTimer::Ahead ahead{.saving = parts_.saver.busy(), .steps = next - step};
  if (parts_.job_end != nullptr) {
    const std::string change = parts_.job_end->update(now, parts_.stop_timer, ahead);
    if (!change.empty()) parts_.reporter.say(change);
  }
  out_of_time_ = parts_.stop_timer.is_due(now, ahead);
  return out_of_time_;
}

void TrainingLoop::keep_loss_scale() {
  const auto& scale = parts_.steps.step().loss_scaler().state();
  if (!scale) return;
  state_.loss_scale = scale->scale;
  state_.loss_scale_good_steps = scale->good_steps;
  state_.skipped_steps = scale->skipped_steps;
}

void TrainingLoop::check_scale(const StepResult& result) {
  const double scale = parts_.steps.step().loss_scaler().scale();
  if (!result.overflowed || scale >= 1) return;
  const std::string checkpoint = parts_.saver.last_good();
  parts_.reporter.stopped(state_.step + 1, state_.epoch, "diverged");
  fail(ExitStatus::diverged,
       "the gradients overflow fp16 at step {} with a loss scale of {} (training diverged; last "
       "good checkpoint: {}); lower --lr, lengthen --warmup-epochs or use --precision bf16",
       state_.step + 1, 2 * scale, checkpoint.empty() ? "none" : checkpoint);
}

void TrainingLoop::check_finite(const StepResult& result) {
  // With loss scaling, such a step is skipped and the scale halved.
  if (parts_.steps.step().loss_scaler().is_dynamic()) return check_scale(result);
  if (result.sums.not_finite == 0) return;
  const std::string checkpoint = parts_.saver.last_good();
  const std::int64_t step = state_.step + 1;
  parts_.reporter.stopped(step, state_.epoch, "diverged");
  collectively(parts_.comm, [&] {
    if (!std::isfinite(result.own_loss)) {
      fail(ExitStatus::diverged,
           "the loss is {} at step {} on rank {} (training diverged; last good checkpoint: {}); "
           "lower --lr, lengthen --warmup-epochs or set --clip-grad-norm",
           result.own_loss, step, parts_.comm.rank(), checkpoint.empty() ? "none" : checkpoint);
    }
  });
}

std::optional<Evaluations> TrainingLoop::evaluate() {
  const auto stop_wanted = [this] { return stop_due(state_.step); };
  Evaluations evaluations;
  auto of_weights = parts_.evaluator->run(stop_wanted);
  if (!of_weights) return std::nullopt;
  evaluations.weights = std::move(*of_weights);
  if (parts_.average == nullptr) return evaluations;
  parts_.average->exchange();
  evaluations.ema = parts_.evaluator->run(stop_wanted);
  parts_.average->exchange();
  return evaluations.ema ? std::optional(std::move(evaluations)) : std::nullopt;
}

bool TrainingLoop::evaluate_if_due() {
  if (!replicas_equal_) return true;
  if (!is_evaluation_due(parts_.plan.config, eval_interval_, state_)) return true;
  parts_.parallel.await_gathers();
  const TraceSpan span(phases(), "evaluation");
  const std::optional<Evaluations> evaluations = evaluate();
  evaluation_was_stopped_ = !evaluations;
  if (!evaluations) return false;
  state_.last_eval_step = state_.step;
  if (const double value = evaluations->best().metrics[deciding_metric]; value > state_.best_top1) {
    state_.best_top1 = value;
    state_.best_step = state_.step;
    parts_.saver.want();
  }
  // At position 0 the previous epoch has just ended.
  const std::int64_t epoch = state_.position == 0 ? state_.epoch - 1 : state_.epoch;
  parts_.reporter.evaluation(state_.step, epoch, *evaluations);
  result_.evaluation = evaluations->weights;
  result_.ema_evaluation = evaluations->ema;
  step_end_ = std::chrono::steady_clock::now();
  return true;
}

}  // namespace lockstep
