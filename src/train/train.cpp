#include "lockstep/compute/compute.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/environment_variable.hpp"
#include "lockstep/core/unix_time.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/health/require_memory.hpp"
#include "lockstep/runtime/signals.hpp"
#include "run.hpp"
#include "training_loop.hpp"

#include <chrono>
#include <stop_token>

namespace lockstep {
namespace {

/// Used until a save is measured: the time to write three copies of the parameters to a slow disk.
double assumed_save_seconds(const Engine& engine) noexcept {
  constexpr double bytes_per_second = 50e6;
  return 12 * static_cast<double>(engine.layout().size()) / bytes_per_second;
}

}  // namespace

/// Starts to load the training data, and compiles the training step and the evaluation.
void Run::build_steps() {
  start_clock_.enter("programs");
  const auto warn = [this](const std::string& line) { reporter_->warn(line); };
  watch_.board().set_marks(session_->compute().phase_marks());
  steps_.emplace(TrainingSteps::Parts{.config = plan_.plan.config,
                                      .geometry = geometry_,
                                      .graphs = graphs_,
                                      .session = *session_,
                                      .comm = comm_,
                                      .data = data(),
                                      .loading = loading_,
                                      .board = watch_.board(),
                                      .trace = recorder_.get(),
                                      .last_step = last_step_,
                                      .warn = warn},
                 state_);
  if (job_end_) time_ = job_end_->allowed();
  stop_timer_.emplace(time_.end, assumed_save_seconds(session_->engine()));
  collectively(comm_, [&] {
    require_activations(
        plan_.plan.config, graph(), session_->shard_group(), limits_,
        {.bytes = steps_->activation_bytes(), .samples = geometry_.largest_micro_batch()});
    const TimeAdvice advice = time_advice();
    // The end of the job is no property of the command, which a later job may go on with.
    if (!advice.refusal.empty()) fail(ExitStatus::stopped, "{}", advice.refusal);
    time_.problems.insert(time_.problems.end(), advice.warnings.begin(), advice.warnings.end());
  });
  if (!validation_) return;
  evaluator_.emplace(session_->engine(), *validation_, comm_,
                     EvaluatorOptions{.loader = evaluation_loader_options(plan_.plan, loading_),
                                      .batch_size = geometry_.largest_micro_batch(),
                                      .board = &watch_.board(),
                                      .warn = warn,
                                      .trace = evaluation_row(recorder_.get()),
                                      .has_collectives = session_->evaluation_has_collectives(),
                                      .exchange = &session_->parallel().exchange(),
                                      .graph = evaluation_graph_ ? &*evaluation_graph_ : nullptr});
}

JobEndOptions Run::job_end_options() const {
  const std::string job = slurm_job(environment_variable);
  return {.begin = begin_,
          .limit = config_.time_limit.seconds,
          .job = job,
          .variables = time_of_variables(environment_variable, unix_time()),
          .ask = [job](const std::stop_token& stop) { return ask_slurm(job, stop); },
          .cores = job_.binding.allowed};
}

TimeAdvice Run::time_advice() {
  if (!time_.end) return {};
  const std::chrono::duration<double> left = *time_.end - StopTimer::Clock::now();
  return advise_on_time(time_,
                        {.left = left.count(),
                         .save = assumed_save_seconds(session_->engine()),
                         .stop = stop_timer_->needed({})},
                        config_.save_every);
}

TrainingResult Run::loop() {
  const RunPlan& plan = plan_.plan;
  std::optional<RunTrace> trace;
  if (recorder_) {
    trace.emplace(RunTraceOptions{.steps = config_.profile_steps,
                                  .run_dir = plan.config.run_dir,
                                  .comm = comm_,
                                  .grid = job_.grid},
                  *recorder_, watch_.board(), *reporter_);
  }
  RunSaver saver({.config = plan.config,
                  .comm = comm_,
                  .engine = session_->engine(),
                  .transfer = session_->parallel(),
                  .optimizer = session_->optimizer(),
                  .average = session_->average(),
                  .checkpoints = checkpoints_ ? &*checkpoints_ : nullptr,
                  .directory = directory_ ? &*directory_ : nullptr,
                  .reporter = *reporter_,
                  .board = watch_.board(),
                  .stop_timer = *stop_timer_,
                  .trace = trace ? &*trace : nullptr,
                  .image = steps_->image(),
                  .class_names = training_.classes.names,
                  .cores = loading_.cores,
                  .nodes = job_.grid.nodes},
                 {.step = state_.step,
                  .path = start_.path,
                  .best_step = state_.best_step,
                  .best_top1 = state_.best_top1});
  TrainingLoop loop({.plan = plan,
                     .geometry = geometry_,
                     .comm = comm_,
                     .engine = session_->engine(),
                     .parallel = session_->parallel(),
                     .shard_group = session_->shard_group(),
                     .steps = *steps_,
                     .evaluator = evaluator_ ? &*evaluator_ : nullptr,
                     .average = session_->average(),
                     .saver = saver,
                     .directory = directory_ ? &*directory_ : nullptr,
                     .reporter = *reporter_,
                     .board = watch_.board(),
                     .stop_timer = *stop_timer_,
                     .job_end = job_end_ ? &*job_end_ : nullptr,
                     .loader_threads = loading_.threads,
                     .trace = trace ? &*trace : nullptr,
                     .hosts = watch_.hosts(),
                     .between_steps = [&] { report_staging(staging_.get(), *reporter_); }},
                    state_, last_step_);
  return loop.run();
}

TrainingResult train(const Config& config, const TrainingJob& job) {
  validate(config);
  const SignalFlag signals;
  const auto begin = StopTimer::Clock::now();
  require_agreement(job.comm, print_config(config), "the configuration",
                    "ranks were started with different options");
  prepare_environment(config);
  TrainingJob started = job;
  started.start_clock.enter("watchdog");
  Run run(config, started, begin);
  try {
    return run.run();
  } catch (...) {
    if (job.keep_watchdog) job.keep_watchdog(run.share_watchdog());
    throw;
  }
}

}  // namespace lockstep
