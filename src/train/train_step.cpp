#include "lockstep/train/train_step.hpp"

#include "data_wait.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/run/run_trace.hpp"

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

/// The step in progress.
struct TrainStep::Current {
  StepUpdate::Step step;
  StepSync sync;
  Stopwatch stopwatch;
  BatchMetrics metrics = {};
  StepResult result = {};
};

TrainStep::TrainStep(Engine& engine, GradientSync& state, Optimizer& optimizer, Communicator& comm,
                     Loader& loader, const TrainStepOptions& options)
    : engine_(engine),
      state_(state),
      loader_(loader),
      options_(options),
      board_(options.board != nullptr ? *options.board : own_board_),
      scaler_(options.loss_scale),
      tail_(engine.graph()),
      tail_values_(engine.input_format().memory, tail_.size()),
      update_(state, optimizer, scaler_, tail_,
              {.clip_norm = options.clip_grad_norm,
               .global_batch = options.geometry.global_batch,
               .accumulates = options.geometry.accumulate > 1}) {
  if (options_.trace != nullptr) {
    phases_ = &options_.trace->row(TraceRows::phases);
    steps_ = &options_.trace->row(TraceRows::steps);
  }
  if (options_.has_collectives) {
    const Graph& graph = options_.graph != nullptr ? *options_.graph : engine.graph();
    blank_ = BlankBatch(graph.input_shape(), options_.geometry.largest_micro_batch());
  }
  collectively(comm, [this] {
    const BatchGeometry& geometry = options_.geometry;
    program_ = compile(geometry.largest_micro_batch());
    if (geometry.smallest_micro_batch() != geometry.largest_micro_batch()) {
      smaller_program_ = compile(geometry.smallest_micro_batch());
    }
    load_next();
    if (data_error_) throw Error(*data_error_);
  });
}

std::unique_ptr<Program> TrainStep::compile(std::int64_t batch_size) {
  return engine_.compile({.batch_size = batch_size,
                          .training = true,
                          .exchange = &state_.exchange(),
                          .bucket_ends = state_.bucket_ends(),
                          .graph = options_.graph});
}

std::size_t TrainStep::activation_bytes() const noexcept {
  return program_->activation_bytes();
}

void TrainStep::load_next() {
  // An error of a reduction is not a data error.
  std::exception_ptr failure;
  DataWait wait(loader_, options_.warn);
  const auto progress = [&] {
    wait.check();
    if (failure != nullptr) return;
    try {
      state_.progress();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  try {
    batch_ = loader_.next(progress);
    if (batch_ && batch_->batch.pixels.data != nullptr) engine_.prefetch(batch_->batch);
  } catch (const Error& error) {
    batch_.reset();
    data_error_ = error;
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

Program& TrainStep::program_for(std::int64_t batch_size) noexcept {
  return batch_size == program_->batch_size() ? *program_ : *smaller_program_;
}

StepResult TrainStep::run(const StepUpdate::Step& step, const StepCall& call) {
  Current current{.step = step, .sync = call.sync, .stopwatch = Stopwatch(phases_, step.number)};
  tail_.clear(tail_values_.span());
  state_.begin_step(call.sync);
  board_.begin_step(step.number);
  for (int micro = 0; micro < options_.geometry.accumulate; ++micro) {
    if (!batch_ && !options_.has_collectives) break;
    run_micro_step(micro, current);
  }
  write_sums(call.requests, current);
  const bool settled = reduce(current);
  const bool averages = call.sync == StepSync::average;
  if (settled && call.next == NextAction::step && !averages) run_ahead(current);
  state_.await_read_tail();
  // On an engine that queues, this waits for the device's own work, which waits for other ranks.
  if (engine_.memory().queues())
    current.result.times.communication += lap_at_end(current, "reduction wait");
  current.result.times.gpu = engine_.take_device_seconds();
  finish(current);
  if (options_.trace != nullptr && options_.trace->recording()) engine_.report_steps();
  current.stopwatch.add_step(steps_);
  return current.result;
}

double TrainStep::lap_at_end(Current& current, const char* name) noexcept {
  return current.stopwatch.lap(name, options_.geometry.accumulate - 1);
}

/// The loaded batch, or a blank one in its place.
Batch TrainStep::batch_of(int micro) {
  if (batch_) return batch_->batch;
  return blank_.of(options_.geometry.micro_batch(micro).count);
}

/// Forward and backward of this micro-step, then loads the data of the next.
void TrainStep::run_micro_step(int micro, Current& current) {
  const BatchGeometry& geometry = options_.geometry;
  const std::int64_t samples =
      current.sync == StepSync::gradients ? geometry.global_batch : geometry.own_samples();
  const auto loss_scale = static_cast<float>(scaler_.scale() / static_cast<double>(samples));
  const bool last = micro + 1 == geometry.accumulate;
  const Batch batch = batch_of(micro);
  Program& program = program_for(batch.size);
  PhaseTimes& times = current.result.times;
  const auto lap = [&](double& phase, const char* name) {
    const double waited = state_.take_waited_seconds();
    phase += current.stopwatch.lap(name, micro) - waited;
    times.communication += waited;
  };

  board_.enter(Phase::forward);
  if (!std::exchange(is_ahead_, false)) program.forward(batch);
  lap(times.forward, "forward");

  board_.enter(Phase::backward);
  state_.begin_micro_step(micro == 0);
  program.backward({.loss_scale = loss_scale,
                    .accumulate = micro > 0,
                    .reduces = last && current.sync == StepSync::gradients});
  const BatchMetrics metrics = program.metrics();
  if (batch_) current.metrics += metrics;
  tail_.fold(tail_values_.span(), program.batch_statistics(),
             static_cast<double>(batch.size) / static_cast<double>(geometry.micro_samples(micro)));
  lap(times.backward, "backward");

  board_.enter(Phase::data);
  load_next();
  times.data += current.stopwatch.lap("data", micro);
}

void TrainStep::write_sums(const StepRequests& requests, Current& current) {
  const BatchMetrics& metrics = current.metrics;
  tail_.write_sums(tail_values_.span(),
                   {.loss = metrics.loss / static_cast<double>(options_.geometry.global_batch),
                    .metrics = metrics.metrics,
                    .samples = static_cast<double>(metrics.samples),
                    .not_finite = std::isfinite(metrics.loss) ? 0 : 1,
                    .stop_requests = requests.stop ? 1 : 0,
                    .save_requests = requests.save ? 1 : 0,
                    .failed = data_error_ ? 1 : 0});
  current.result.own_loss = metrics.loss;
  current.result.own_samples = static_cast<double>(metrics.samples);
}

/// Waits for the reductions, and updates what needs no value of the tail. Returns whether the
/// update needs nothing more from the host.
bool TrainStep::reduce(Current& current) {
  PhaseTimes& times = current.result.times;
  board_.enter(Phase::communication);
  const bool settled = update_.run(current.step, tail_values_.span(), [&](const StepOp& op) {
    using Kind = StepOp::Kind;
    // A gather is started for the next step.
    const bool waits = op.is_collective() && op.kind != Kind::start_gather;
    double& phase = waits ? times.communication : times.optimizer;
    phase += lap_at_end(current, waits ? "reduction wait" : "update");
  });
  state_.queue_read_tail(tail_values_.span());
  if (engine_.memory().queues()) times.optimizer += lap_at_end(current, "update");
  return settled;
}

/// Queues the next step's first forward, if the engine queues its work. If it contains collectives,
/// all ranks queue it whatever their loaders return; a rank without a batch queues a blank one.
void TrainStep::run_ahead(Current& current) {
  // A traced step must be complete when it ends, so nothing may be queued behind it.
  const bool traced = options_.trace != nullptr && options_.trace->recording();
  const bool follows = batch_ || options_.has_collectives;
  if (!follows || !engine_.memory().queues() || traced) return;
  const Batch batch = batch_of(0);
  program_for(batch.size).forward(batch);
  is_ahead_ = true;
  const double waited = state_.take_waited_seconds();
  current.result.times.forward += current.stopwatch.lap("forward") - waited;
  current.result.times.communication += waited;
}

/// Reads the tail, then makes the update, unless reduce() has, and updates the running statistics.
void TrainStep::finish(Current& current) {
  board_.enter(Phase::update);
  const std::span<const float> tail = tail_values_.span();
  StepResult& result = current.result;
  result.sums = tail_.read_sums(tail);
  // With accumulation, data may fail in the middle of the step: then nothing may change.
  result.updated = result.sums.samples == static_cast<double>(options_.geometry.global_batch);
  if (result.updated) {
    const UpdateOutcome outcome = update_.finish(current.step, result.sums.not_finite);
    result.gradient_norm = outcome.gradient_norm;
    result.overflowed = !outcome.made;
    scaler_.update(outcome.made);
    if (outcome.made) {
      tail_.update_running(tail, options_.geometry.accumulate, engine_.running_statistics());
      if (options_.average != nullptr) options_.average->update_statistics(current.step.ema_decay);
    }
  }
  result.times.optimizer += lap_at_end(current, "update");
  if (result.updated && current.sync == StepSync::average) {
    board_.enter(Phase::communication);
    options_.replicas->average();
    result.times.communication += lap_at_end(current, "average of replicas");
  }
}

}  // namespace lockstep
