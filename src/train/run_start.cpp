#include "image_sizes.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/config/unlikely_values.hpp"
#include "lockstep/core/log_words.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/health/require_memory.hpp"
#include "lockstep/runtime/gpu_place.hpp"
#include "run.hpp"
#include "run_schedule.hpp"

#include <utility>

namespace lockstep {

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
  graphs_ = build_training_graphs(plan);
  evaluation_graph_ = build_evaluation_graph(graph(), plan);
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
  describe_resume();
  for (const std::string& line : consequences_) reporter_->say(line);
  for (const ConfigDifference& change : changes_) {
    reporter_->say(fmt::format("--{} was {}, is {} now", change.name, change.left, change.right));
  }
  if (start_.reader) describe_average();
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
  describe_untrained();
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
  checkpoints_backend_ = state_.backend.value_or("");
  checkpoints_all_reduce_ = state_.all_reduce.value_or("");
  state_.backend = session_->compute().backend();
  state_.all_reduce = session_->compute().all_reduce();
  state_.optimizer = std::string(session_->optimizer().name());
  if (recorder_) session_->engine().set_step_timer(step_trace_.emplace(*recorder_));
  start_clock_.enter("parameters");
  for (const std::string& note : session_->start(start_)) reporter_->say(note);
  start_.reader.reset();
}

/// Opens the validation data, starts staging, and chooses cores and threads that load data.
void Run::open_loaders() {
  start_clock_.enter("loader");
  const RunPlan& plan = plan_.plan;
  if (!validation_) open_validation();
  staging_ = stage_data(plan.config, {.comm = comm_, .grid = job_.grid, .binding = job_.binding},
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

}  // namespace lockstep
