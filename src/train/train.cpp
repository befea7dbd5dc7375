#include "build_graph.hpp"
#include "describe_start.hpp"
#include "image_sizes.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/config/unlikely_values.hpp"
#include "lockstep/core/log_words.hpp"
#include "lockstep/health/job_end.hpp"
#include "lockstep/health/require_memory.hpp"
#include "lockstep/health/run_watch.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_trace.hpp"
#include "lockstep/runtime/gpu_place.hpp"
#include "lockstep/runtime/signals.hpp"
#include "lockstep/train/trainer.hpp"
#include "lockstep/train/training_session.hpp"
#include "normalization.hpp"
#include "open_data.hpp"
#include "run_schedule.hpp"
#include "stage_data.hpp"
#include "training_loop.hpp"
#include "training_steps.hpp"

#include <chrono>
#include <cstdlib>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Used until a save is measured: the time to write three copies of the parameters to a slow disk.
double assumed_save_seconds(const Engine& engine) noexcept {
  constexpr double bytes_per_second = 50e6;
  return 12 * static_cast<double>(engine.layout().size()) / bytes_per_second;
}

/// One call of train(). run() calls the phases in order; each sets members that later ones use.
/// Members are destroyed in the opposite order.
class Run final {
 public:
  Run(const Config& config, const TrainingJob& job, StopTimer::Clock::time_point begin)
      : config_(config),
        job_(job),
        begin_(begin),
        start_clock_(job.start_clock),
        recorder_(make_trace_recorder(config)),
        watch_(config, {.comm = job.comm, .grid = job.grid, .cores = job.binding.allowed},
               recorder_.get()),
        comm_(watch_.comm()) {}

  TrainingResult run() {
    find_start();
    plan();
    open_reports();
    report_start_point();
    if (state_.step >= last_step_ && !must_evaluate()) return nothing_to_do();
    build_session();
    open_loaders();
    build_steps();
    describe();
    return loop();
  }
  [[nodiscard]] std::shared_ptr<Watchdog> share_watchdog() const { return watch_.share_watchdog(); }

 private:
  void find_start();
  void plan();
  void open_reports();
  void report_start_point();
  bool must_evaluate();
  TrainingResult nothing_to_do();
  void build_session();
  void open_loaders();
  void build_steps();
  void describe();
  TrainingResult loop();
  void open_validation();
  [[nodiscard]] JobEndOptions job_end_options() const;
  [[nodiscard]] TimeAdvice time_advice();
  [[nodiscard]] Dataset& data() const noexcept { return *training_.matched.data; }
  /// The engine's.
  [[nodiscard]] const Graph& graph() const noexcept { return graphs_.front().graph; }

  const Config& config_;
  const TrainingJob& job_;
  StopTimer::Clock::time_point begin_;
  StartClock start_clock_;
  std::unique_ptr<TraceRecorder> recorder_;  ///< null: no trace
  std::optional<StepTrace> step_trace_;
  RunWatch watch_;
  Communicator& comm_;

  std::optional<JobEnd> job_end_;  ///< rank 0's: its stop request reaches all ranks
  MatchedTraining training_;
  std::optional<RunDirectory> directory_;           ///< rank 0's
  std::optional<CheckpointDirectory> checkpoints_;  ///< rank 0's
  RunStart start_;
  NormalizedPlan plan_;
  std::vector<SizedGraph> graphs_;
  std::optional<Graph> evaluation_graph_;  ///< for images of another size
  std::vector<ConfigDifference> changes_;  ///< of options since the checkpoint
  std::vector<std::string> consequences_;  ///< of these changes
  BatchGeometry geometry_;
  TrainingState state_;
  std::int64_t last_step_ = 0;
  std::shared_ptr<RunReporter> reporter_;

  std::vector<MemoryLimit> limits_;  ///< of a CPU engine
  std::optional<TrainingSession> session_;
  Numerics checkpoints_numerics_;
  std::shared_ptr<Dataset> validation_;
  std::shared_ptr<Staging> staging_;
  LoaderOptions loading_;
  std::optional<TrainingSteps> steps_;
  TimeAllowed time_;
  std::optional<StopTimer> stop_timer_;
  std::optional<Evaluator> evaluator_;
};

/// Opens the data and the run directory, and finds the state to start from.
void Run::find_start() {
  start_clock_.enter("data");
  if (comm_.rank() == 0) job_end_.emplace(job_end_options());
  auto data = open_training_data(config_, comm_);
  start_clock_.enter("checkpoint");
  const Config opening = resolve_run(config_, data->info(), comm_.size()).config;
  collectively(comm_, [&] {
    if (comm_.rank() != 0) return;
    directory_.emplace(DirectoryLockOptions{.path = opening.run_dir, .job = job_name()});
    checkpoints_.emplace(directory_->checkpoints(), config_.keep,
                         [this] { directory_->require_held(); });
  });
  start_ = find_run_start(opening, checkpoints_ ? &*checkpoints_ : nullptr, comm_);
  training_ = match_training_data(std::move(data), start_, config_, comm_);
}

/// Resolves the configuration with the checkpoint's, or fails if they do not fit.
void Run::plan() {
  plan_ = normalized_plan(config_, start_, data().info(), comm_);
  RunPlan& plan = plan_.plan;
  graphs_ = build_training_graphs(plan, job_.model);
  evaluation_graph_ = build_evaluation_graph(graph(), plan, job_.model);
  if (start_.state) {
    const Config before = parse_config_text(start_.state->config);
    check_resumable(plan, before, *start_.state, data().info().identity, graph().fingerprint());
    plan.global_batch = resumed_global_batch(plan, before, *start_.state, comm_.size());
    changes_ = differences(before, plan.config);
    consequences_ = apply_changes(before, plan.config, *start_.state);
  }
  check_global_batch(plan, data().info(), comm_.size());
  geometry_ = {.samples = data().info().samples,
               .global_batch = plan.global_batch,
               .world_size = comm_.size(),
               .rank = comm_.rank(),
               .accumulate = static_cast<int>(config_.accumulate)};
  state_ = starting_state({.config = plan.config,
                           .geometry = geometry_,
                           .data_identity = data().info().identity,
                           .graph = graph()},
                          start_.state);
  last_step_ = last_step_of(plan.config, geometry_, state_);
}

/// Writes config.ini, and opens each rank's log; if one rank cannot, all fail with the same error.
void Run::open_reports() {
  start_clock_.enter("logs");
  collectively(comm_, [&] {
    if (directory_) directory_->write_config(state_.config);
  });
  collectively(comm_, [&] {
    if (directory_) directory_->require_held();
    reporter_ = std::make_shared<RunReporter>(
        RunReporterOptions{.run_dir = plan_.plan.config.run_dir,
                           .grid = job_.grid,
                           .cores = job_.binding.text,
                           .progress = config_.progress,
                           .log_ranks = config_.log_ranks,
                           .log_every = config_.log_every,
                           .epochs = config_.epochs,
                           .steps_per_epoch = geometry_.steps_per_epoch(),
                           .total_steps = last_step_,
                           .resumed_step = state_.step,
                           .holds_directory = [this] { return directory_->is_held(); }});
  });
  watch_.watchdog().log_to([opened = reporter_](const std::string& line) { opened->alarm(line); });
}

void Run::report_start_point() {
  for (const std::string& rejected : start_.rejected) reporter_->warn(rejected);
  if (!plan_.warning.empty()) reporter_->warn(plan_.warning);
  if (!training_.matched.note.empty()) reporter_->warn(training_.matched.note);
  for (const std::string& warning : unlikely_values(plan_.plan.config, plan_.plan.global_batch)) {
    reporter_->warn(warning);
  }
  if (!start_.state) {
    if (start_.reader && !start_.reader->ema().empty()) {
      reporter_->say(
          fmt::format("starts from the average of the weights in {}", config_.init_from));
    }
    return;
  }
  describe_resume(*reporter_, start_, state_, geometry_);
  for (const std::string& line : consequences_) reporter_->say(line);
  for (const ConfigDifference& change : changes_) {
    reporter_->say(fmt::format("--{} was {}, is {} now", change.name, change.left, change.right));
  }
  if (start_.reader) describe_average(*reporter_, plan_.plan.config, start_);
}

/// Whether a stop cut short the evaluation after the last step. Collective.
bool Run::must_evaluate() {
  const Config& config = plan_.plan.config;
  if (!is_evaluation_due(config, evaluation_interval(config, geometry_), state_)) return false;
  open_validation();
  return validation_ != nullptr;
}

void Run::open_validation() {
  MatchedData matched = open_validation_data(plan_.plan.config, training_.classes, comm_);
  if (!matched.note.empty()) reporter_->warn(matched.note);
  validation_ = std::move(matched.data);
  if (!validation_) return;
  refuse_resizing(config_, validation_->info());
  describe_untrained(*reporter_, data().info(), validation_->info());
}

TrainingResult Run::nothing_to_do() {
  reporter_->say(
      fmt::format("{} {} is the configured end (raise --epochs or --max-steps to continue)",
                  log_words::nothing_to_do, state_.step));
  return {.status = ExitStatus::ok,
          .step = state_.step,
          .run_dir = plan_.plan.config.run_dir,
          .checkpoint = start_.path,
          .evaluation = std::nullopt};
}

/// Makes the engine on this rank's cores or device, and sets the parameters.
void Run::build_session() {
  start_clock_.enter("engine");
  const Config& config = plan_.plan.config;
  std::vector<const Graph*> resized;
  for (const SizedGraph& sized : std::span(graphs_).subspan(1)) resized.push_back(&sized.graph);
  session_.emplace(graph(), config, job_.grid, comm_,
                   SessionOptions{.threads = job_.binding.threads,
                                  .cores = job_.binding.allowed,
                                  .conv_batch = geometry_.largest_micro_batch(),
                                  .convolutions = state_.convolutions.value_or(""),
                                  .resized = std::move(resized),
                                  .watch = &watch_,
                                  .before_host_memory = [this](int shard_group) {
                                    limits_ = require_memory(plan_.plan.config, graph(),
                                                             shard_group, job_.grid, comm_);
                                  }});
  state_.convolutions = session_->compute().convolutions();
  checkpoints_numerics_ = Numerics::of(state_);
  state_.backend = session_->compute().backend();
  state_.all_reduce = session_->compute().all_reduce();
  state_.optimizer = std::string(session_->optimizer().name());
  if (recorder_) session_->engine().set_step_timer(step_trace_.emplace(*recorder_));
  start_clock_.enter("parameters");
  session_->start(start_);
  start_.reader.reset();
}

/// Opens the validation data, starts staging, and chooses cores and threads that load data.
void Run::open_loaders() {
  start_clock_.enter("loader");
  const RunPlan& plan = plan_.plan;
  if (!validation_) open_validation();
  staging_ = stage_data(plan.config,
                        {.comm = comm_, .grid = job_.grid, .binding = job_.binding, .model = {}},
                        {&data(), validation_.get()});
  loading_ = loader_options(plan, session_->engine().input_format());
  if (loading_.format.content == ImageContent::pixels) {
    check_pairs(plan.config, geometry_, state_.position);
  }
  loading_.drop_probabilities = drop_probabilities(graph());
  loading_.batch_capacity = geometry_.largest_micro_batch();
  loading_.cores = job_.binding.allowed;
  if (const std::string gpu = session_->compute().bus_id(); !gpu.empty()) {
    FeedingCores feeding = bind_near_gpu(gpu, job_.binding.allowed, comm_);
    loading_.cores = std::move(feeding.cores);
    if (!feeding.text.empty()) reporter_->say("threads: " + feeding.text);
    if (feeding.warning) reporter_->warn(*feeding.warning);
  }
  loading_.threads = loader_threads(plan.config.loader_threads, loading_, job_.binding.share);
  loading_.trace = recorder_.get();
}

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
                                      .exchange = session_->parallel().exchange(),
                                      .graph = evaluation_graph_ ? &*evaluation_graph_ : nullptr});
}

JobEndOptions Run::job_end_options() const {
  const auto lookup = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string job = slurm_job(lookup);
  return {.begin = begin_,
          .limit = config_.time_limit.seconds,
          .job = job,
          .variables = time_of_variables(lookup, std::chrono::duration<double>(now).count()),
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

void Run::describe() {
  const StartParts parts{
      .plan = plan_.plan,
      .geometry = geometry_,
      .data = data().info(),
      .binding = job_.binding,
      .session = *session_,
      .steps = *steps_,
      .bytes = session_->parallel().bytes(session_->optimizer().slot_names().size()),
      .resizes = graphs_.size() > 1,
      .validation = validation_ ? &validation_->info() : nullptr,
      .resizes_to_evaluate = evaluation_graph_.has_value(),
      .numerics = Numerics::of(state_),
      .checkpoints_numerics = checkpoints_numerics_,
      .time = time_,
      .stop_seconds = stop_timer_->needed({}),
      .staging = staging_.get(),
      .changes = changes_,
      .hosts = watch_.hosts()};
  describe_start(*reporter_, parts);
  start_clock_.enter("training");
  report_start(*reporter_, parts, state_, start_clock_);
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
                     .nodes = job_.grid.nodes,
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

}  // namespace

TrainingResult train(const Config& config, const TrainingJob& job) {
  validate(config);
  const SignalFlag signals;
  const auto begin = StopTimer::Clock::now();
  require_agreement(job.comm, print_config(config), "the configuration",
                    "ranks were started with different options");
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
