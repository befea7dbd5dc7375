#include "lockstep/train/train_step.hpp"

#include "lockstep/run/run_trace.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

/// Measures laps in seconds and adds each as an event to a trace row (may be null).
class Stopwatch final {
 public:
  Stopwatch(TraceRow* row, std::int64_t step) : row_(row), step_(step) {}

  double lap(const char* name, int micro_step = 0) noexcept {
    const auto now = std::chrono::steady_clock::now();
    if (row_ != nullptr) {
      row_->add({.name = name,
                 .begin = nanoseconds(last_),
                 .end = nanoseconds(now),
                 .arguments = {{{"step", step_}, {"micro-step", micro_step}}}});
    }
    const std::chrono::duration<double> elapsed = now - last_;
    last_ = now;
    return elapsed.count();
  }
  /// Adds an event from the start to the end of the last lap.
  void add_step(TraceRow* row) const noexcept {
    if (row == nullptr) return;
    row->add({.name = "step",
              .begin = nanoseconds(begin_),
              .end = nanoseconds(last_),
              .arguments = {{{"step", step_}}}});
  }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  static std::int64_t nanoseconds(TimePoint time) noexcept {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  }

  TraceRow* row_;
  std::int64_t step_;
  TimePoint begin_ = std::chrono::steady_clock::now();
  TimePoint last_ = begin_;
};

}  // namespace

TrainStep::TrainStep(Engine& engine, ParallelState& state, Optimizer& optimizer, Communicator& comm,
                     Loader& loader, const TrainStepOptions& options)
    : engine_(engine),
      state_(state),
      optimizer_(optimizer),
      sum_over_shards_(state.sum_over_shards()),
      loader_(loader),
      options_(options),
      board_(options.board != nullptr ? *options.board : own_board_),
      scaler_(options.loss_scale),
      tail_(engine.graph()),
      tail_values_(engine.input_format().memory, tail_.size()),
      program_(engine.compile_training(options.geometry.largest_micro_batch())) {
  if (options_.geometry.smallest_micro_batch() != options_.geometry.largest_micro_batch()) {
    smaller_program_ = engine.compile_training(options_.geometry.smallest_micro_batch());
  }
  if (options_.trace != nullptr) {
    phases_ = &options_.trace->row(TraceRows::phases);
    steps_ = &options_.trace->row(TraceRows::steps);
  }
  if (options_.has_collectives) {
    blank_ = BlankBatch(engine.graph().image(), options_.geometry.largest_micro_batch());
  }
  collectively(comm, [this] {
    load_next();
    if (data_error_) throw Error(*data_error_);
  });
}

std::size_t TrainStep::activation_bytes() const noexcept {
  return program_->activation_bytes();
}

void TrainStep::load_next() {
  try {
    batch_ = loader_.next();
    if (batch_ && batch_->batch.pixels.data != nullptr) engine_.prefetch(batch_->batch);
  } catch (const Error& error) {
    batch_.reset();
    data_error_ = error;
  }
}

Program& TrainStep::program_for(std::int64_t batch_size) noexcept {
  return batch_size == program_->batch_size() ? *program_ : *smaller_program_;
}

void TrainStep::update_all(const UpdateOptions& options) {
  for (const ParameterRange& range : state_.update_ranges()) {
    optimizer_.update(range.begin, range.end, range.parameters, state_.gradients(), options);
  }
  state_.updated();
}

bool TrainStep::update_as_decided(double lr, std::int64_t step) {
  // With shards, the hosts sum the norms.
  if (sum_over_shards_) return false;
  const std::span<const float> tail = state_.reduced_tail();
  if (!optimizer_.decide({.gradients = state_.gradients(),
                          .samples = &tail[tail_.samples_at()],
                          .all_samples = options_.geometry.global_batch,
                          .not_finite = &tail[tail_.not_finite_at()],
                          .scale = 1.0 / scaler_.scale(),
                          .clip_norm = options_.clip_grad_norm,
                          .skips_overflow = scaler_.is_dynamic()})) {
    return false;
  }
  update_all({.lr = lr, .step = scaler_.updates(step), .as_decided = true});
  return true;
}

void TrainStep::take_outcome(StepResult& result) const {
  const UpdateOutcome outcome = optimizer_.outcome();
  result.gradient_norm = outcome.gradient_norm;
  result.overflowed = !outcome.made;
}

/// After all gradients are reduced: checks them for overflow, clips and updates.
void TrainStep::update_after_all(double lr, std::int64_t step, StepResult& result) {
  double scale = 1.0 / scaler_.scale();
  if (options_.clip_grad_norm > 0 || scaler_.is_dynamic()) {
    // All ranks have the same bits, so all make the same decision.
    double squared = optimizer_.squared_norm(state_.gradients());
    if (sum_over_shards_) sum_over_shards_({&squared, 1});
    result.gradient_norm = scale * std::sqrt(squared);
  }
  if (scaler_.is_dynamic()) {
    result.overflowed = !std::isfinite(result.gradient_norm) || result.sums.not_finite > 0;
    if (result.overflowed) return;
  }
  if (options_.clip_grad_norm > 0) {
    // As torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a zero norm finite, and NaN stays NaN.
    const double share = options_.clip_grad_norm / (result.gradient_norm + 1e-6);
    if (!(share > 1)) scale *= share;
  }
  const UpdateOptions update{
      .lr = lr, .step = scaler_.updates(step), .gradient_scale = static_cast<float>(scale)};
  if (sum_over_shards_) optimizer_.measure(state_.update_ranges(), state_.gradients(), update);
  update_all(update);
}

StepResult TrainStep::run(std::int64_t step, double lr, StepRequests requests, NextAction next) {
  const BatchGeometry& geometry = options_.geometry;
  const auto loss_scale =
      static_cast<float>(scaler_.scale() / static_cast<double>(geometry.global_batch));
  const bool update_at_end = options_.clip_grad_norm > 0 || optimizer_.needs_all_gradients() ||
                             scaler_.is_dynamic() || geometry.accumulate > 1;
  StepResult result;
  Stopwatch watch(phases_, step);
  BatchMetrics metrics;

  const std::span<float> tail = tail_values_.span();
  tail_.clear(tail);
  state_.begin_step();
  board_.begin_step(step);
  for (int micro = 0; micro < geometry.accumulate; ++micro) {
    if (!batch_ && !options_.has_collectives) break;
    const bool last = micro + 1 == geometry.accumulate;
    const Batch batch = batch_ ? batch_->batch : blank_.of(geometry.micro_batch(micro).count);
    Program& program = program_for(batch.size);

    board_.enter(Phase::forward);
    if (!std::exchange(is_ahead_, false)) program.forward(batch);
    const auto lap = [&](double& phase, const char* name) {
      const double waited = state_.take_waited_seconds();
      phase += watch.lap(name, micro) - waited;
      result.times.communication += waited;
    };
    lap(result.times.forward, "forward");

    board_.enter(Phase::backward);
    BackwardObserver& observer = state_.begin_micro_step({.first = micro == 0, .last = last});
    program.backward({.loss_scale = loss_scale, .accumulate = micro > 0}, observer);
    const BatchMetrics micro_metrics = program.metrics();
    if (batch_) {
      metrics.loss += micro_metrics.loss;
      metrics.top1 += micro_metrics.top1;
      metrics.top5 += micro_metrics.top5;
      metrics.samples += micro_metrics.samples;
    }
    tail_.fold(
        tail, program.batch_statistics(),
        static_cast<double>(batch.size) / static_cast<double>(geometry.micro_samples(micro)));
    lap(result.times.backward, "backward");

    board_.enter(Phase::data);
    load_next();
    result.times.data += watch.lap("data", micro);
  }
  tail_.write_sums(tail, {.loss = metrics.loss / static_cast<double>(geometry.global_batch),
                          .top1 = static_cast<double>(metrics.top1),
                          .top5 = static_cast<double>(metrics.top5),
                          .samples = static_cast<double>(metrics.samples),
                          .not_finite = std::isfinite(metrics.loss) ? 0 : 1,
                          .stop_requests = requests.stop ? 1 : 0,
                          .save_requests = requests.save ? 1 : 0,
                          .units = requests.units,
                          .failed = data_error_ ? 1 : 0});

  board_.enter(Phase::communication);
  state_.finish(tail, [&](const ParameterRange& range) {
    result.times.communication += watch.lap("reduction wait", geometry.accumulate - 1);
    if (!update_at_end) {
      optimizer_.update(range.begin, range.end, range.parameters, state_.gradients(),
                        {.lr = lr, .step = step});
    }
    result.times.optimizer += watch.lap("update", geometry.accumulate - 1);
  });
  const bool decided = update_at_end && update_as_decided(lr, step);
  if (!update_at_end) state_.updated();
  state_.queue_read_tail(tail);
  if (engine_.queues()) result.times.optimizer += watch.lap("update", geometry.accumulate - 1);
  const bool settled = decided || !update_at_end;
  // A traced step must be complete when it ends, so nothing may be queued behind it.
  const bool traced = options_.trace != nullptr && options_.trace->recording();
  if (settled && next == NextAction::step && batch_ && engine_.queues() &&
      !options_.has_collectives && !traced) {
    program_for(batch_->batch.size).forward(batch_->batch);
    is_ahead_ = true;
    result.times.forward += watch.lap("forward");
  }
  state_.await_tail();
  // Includes waits for this device's own work, and through it for other ranks.
  if (engine_.queues()) {
    result.times.communication += watch.lap("reduction wait", geometry.accumulate - 1);
  }
  board_.enter(Phase::update);
  result.own_loss = metrics.loss;
  result.own_samples = static_cast<double>(metrics.samples);
  result.sums = tail_.read_sums(tail);

  // With accumulation, data may fail in the middle of the step: then nothing may change.
  result.updated = result.sums.samples == static_cast<double>(geometry.global_batch);
  if (result.updated) {
    if (decided) {
      take_outcome(result);
    } else if (update_at_end) {
      update_after_all(lr, step, result);
    }
    scaler_.update(!result.overflowed);
    if (!result.overflowed) {
      tail_.update_running(tail, geometry.accumulate, engine_.running_statistics());
    }
  }
  result.times.optimizer += watch.lap("update", geometry.accumulate - 1);
  if (options_.trace != nullptr && options_.trace->recording()) engine_.report_steps();
  watch.add_step(steps_);
  return result;
}

}  // namespace lockstep
