#include "describe_start.hpp"
#include "hybrid_groups.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/parallel/shard_group.hpp"
#include "lockstep/runtime/signals.hpp"
#include "lockstep/train/progress.hpp"
#include "lockstep/train/run_directory.hpp"
#include "lockstep/train/run_state.hpp"
#include "lockstep/train/step_trace.hpp"
#include "lockstep/train/trainer.hpp"
#include "lockstep/train/training_loop.hpp"
#include "normalization.hpp"
#include "require_memory.hpp"
#include "run_watch.hpp"
#include "stage_data.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace lockstep {
namespace {

std::unique_ptr<Dataset> open_training_data(const Config& config, Communicator& comm) {
  if (!config.synthetic) return open_dataset(config.data, "train", comm);
  const std::int64_t size = config.image_size != 0 ? config.image_size : 224;
  return make_synthetic_dataset({.samples = config.synthetic_samples,
                                 .image = {.channels = config.channels != 0 ? config.channels : 3,
                                           .height = size,
                                           .width = size},
                                 .classes = config.classes != 0 ? config.classes : 1000,
                                 .seed = static_cast<std::uint64_t>(config.seed)});
}

std::unique_ptr<Dataset> open_validation_data(const RunPlan& plan, Communicator& comm) {
  const Config& config = plan.config;
  if (config.synthetic) return nullptr;
  bool present = false;
  collectively(comm, [&] { present = comm.rank() != 0 || has_split(config.val_data, "val"); });
  if (comm.all_reduce_value<std::int32_t>(present ? 1 : 0, ReduceOp::min) == 0) return nullptr;
  auto dataset = open_dataset(config.val_data, "val", comm);
  if (dataset->info().classes > config.classes) {
    fail(ExitStatus::usage,
         "the validation split of {} has {} classes, but the network has {} (its labels need an "
         "output "
         "each); use --classes {} or more",
         config.val_data, dataset->info().classes, config.classes, dataset->info().classes);
  }
  return dataset;
}

/// State of the run's loss scaling; only fp16 uses it.
std::optional<LossScale> loss_scale_of(const Config& config, TrainingState& state) noexcept {
  if (config.precision != Precision::fp16) {
    state.loss_scale = 0;
    state.loss_scale_good_steps = 0;
    return std::nullopt;
  }
  LossScale scale{.skipped_steps = state.skipped_steps};
  if (state.loss_scale > 0) {
    scale.scale = state.loss_scale;
    scale.good_steps = state.loss_scale_good_steps;
  }
  return scale;
}

Graph build_graph(const RunPlan& plan, const TrainingJob& job) {
  return job.model ? job.model(plan.model) : make_model(plan.config.model, plan.model);
}

/// A plan that normalises inputs as its initial weights were trained: the checkpoint's if resumed,
/// else those of --init-from; --mean and --std take precedence. `warning`: from
/// normalize_as_trained().
struct NormalizedPlan {
  RunPlan plan;
  std::string warning;
};
NormalizedPlan normalized_plan(const Config& config, const RunStart& start, const DatasetInfo& data,
                               Communicator& comm) {
  Config chosen = config;
  std::string warning;
  if (start.state) {
    const Config before = parse_config_text(start.state->config);
    if (chosen.mean.empty()) chosen.mean = before.mean;
    if (chosen.std.empty()) chosen.std = before.std;
  } else if (!config.init_from.empty()) {
    const CheckpointInfo info = start.reader ? start.reader->info() : CheckpointInfo();
    warning =
        normalize_as_trained(broadcast_normalization(info, config.init_from, comm), data, chosen);
  }
  return {.plan = resolve_run(chosen, data, comm.size()), .warning = std::move(warning)};
}

/// Estimate until a save is measured: three copies of the parameters to a slow disk.
double assumed_save_seconds(const Engine& engine) noexcept {
  constexpr double bytes_per_second = 50e6;
  return 12 * static_cast<double>(engine.layout().size()) / bytes_per_second;
}

/// Steps until the configured end, counted from the run's beginning.
std::int64_t last_step_of(const Config& config, const BatchGeometry& geometry,
                          const TrainingState& state) {
  const std::int64_t left_in_epoch =
      state.epoch >= config.epochs
          ? 0
          : (geometry.samples - state.position) / geometry.global_batch +
                (config.epochs - state.epoch - 1) * geometry.steps_per_epoch();
  const std::int64_t by_epochs = state.step + left_in_epoch;
  return config.max_steps == 0 ? by_epochs : std::min(by_epochs, config.max_steps);
}

}  // namespace

TrainingResult train(const Config& config, const TrainingJob& job) {
  validate(config);
  const SignalFlag signals;
  const auto begin = StopTimer::Clock::now();
  require_agreement(job.comm, print_config(config), "the configuration",
                    "ranks were started with different options");
  const auto recorder = make_trace_recorder(config);
  std::optional<StepTrace> step_trace;
  RunWatch watch(config, job, recorder.get());
  Communicator& comm = watch.comm();

  const auto data = open_training_data(config, comm);
  const Config opening = resolve_run(config, data->info(), comm.size()).config;

  // Open the run directory and find the state to start from.
  std::optional<RunDirectory> directory;
  std::optional<CheckpointDirectory> checkpoints;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    directory.emplace(RunDirectoryOptions{.path = opening.run_dir, .job = job_name()});
    checkpoints.emplace(directory->checkpoints(), config.keep,
                        [&directory] { directory->require_held(); });
  });
  RunStart start = find_run_start(opening, checkpoints ? &*checkpoints : nullptr, comm);
  NormalizedPlan normalized = normalized_plan(config, start, data->info(), comm);
  RunPlan& plan = normalized.plan;
  std::vector<std::string> changes;
  const Graph graph = build_graph(plan, job);
  if (start.state) {
    const Config before = parse_config_text(start.state->config);
    check_resumable(plan, before, *start.state, data->info().identity, graph.fingerprint());
    // With a changed --conv-algorithm, choose algorithms again.
    if (before.conv_algorithm != plan.config.conv_algorithm) start.state->convolutions.reset();
    plan.global_batch = resumed_global_batch(plan, before, *start.state, comm.size());
    for (const ConfigDifference& change : differences(before, plan.config)) {
      changes.push_back(
          fmt::format("--{} was {}, is {} now", change.name, change.left, change.right));
    }
  }
  check_global_batch(plan, data->info(), comm.size());
  const BatchGeometry geometry{.samples = data->info().samples,
                               .global_batch = plan.global_batch,
                               .world_size = comm.size(),
                               .rank = comm.rank(),
                               .accumulate = static_cast<int>(config.accumulate)};

  TrainingState state;
  if (start.state) state = *start.state;
  state.world_size = comm.size();
  state.global_batch = geometry.global_batch;
  state.seed = config.seed;
  state.data_identity = data->info().identity;
  state.model_identity = graph.fingerprint();
  state.model = graph.name();
  state.config = print_config(plan.config);
  state.version = version();
  const std::int64_t last_step = last_step_of(plan.config, geometry, state);

  collectively(comm, [&] {
    if (directory) directory->write_config(state.config);
  });
  // If one rank cannot open its log, all ranks fail with the same error.
  std::shared_ptr<RunReporter> opened;
  collectively(comm, [&] {
    if (directory) directory->require_held();
    opened = std::make_shared<RunReporter>(
        RunReporterOptions{.run_dir = plan.config.run_dir,
                           .grid = job.grid,
                           .cores = job.binding.text,
                           .progress = config.progress,
                           .log_ranks = config.log_ranks,
                           .log_every = config.log_every,
                           .epochs = config.epochs,
                           .steps_per_epoch = geometry.steps_per_epoch(),
                           .total_steps = last_step,
                           .resumed_step = state.step,
                           .holds_directory = [&directory] { return directory->is_held(); }});
  });
  RunReporter& reporter = *opened;
  watch.watchdog().log_to([opened](const std::string& line) { opened->alarm(line); });
  for (const std::string& rejected : start.rejected) reporter.warn(rejected);
  if (!normalized.warning.empty()) reporter.warn(normalized.warning);
  if (start.state) {
    reporter.say(
        fmt::format("going on from {} (step {}, epoch {}, position {}; written by {} ranks)",
                    start.path, state.step, state.epoch, state.position, start.state->world_size));
    for (const std::string& change : changes) reporter.say(change);
  }
  if (state.step >= last_step) {
    reporter.say(
        fmt::format("nothing to do: step {} is the configured end (raise --epochs or "
                    "--max-steps to go on)",
                    state.step));
    return {.status = ExitStatus::ok,
            .step = state.step,
            .run_dir = plan.config.run_dir,
            .checkpoint = start.path,
            .evaluation = std::nullopt};
  }

  // Build the engine on this rank's cores or device.
  const TailBucket tail(graph);
  const bool synchronised = config.batch_norm == BatchNormScope::sync;
  const int shard_group = shard_group_size(plan.config, job.grid, comm);
  const UnitOptions units = unit_options(plan.config, graph, shard_group);
  std::vector<MemoryLimit> limits;  // of a CPU engine
  const auto compute = make_compute(
      graph,
      {.device = config.device,
       .comm = config.comm,
       .precision = config.precision,
       .threads = job.binding.threads,
       .tail_size = config.shard == ShardMode::none ? tail.size() : 0,
       .units = units,
       .group_size = config.shard == ShardMode::hybrid ? shard_group : 0,
       .synchronised_norms = synchronised,
       .conv_algorithm = config.conv_algorithm,
       .conv_batch = geometry.largest_micro_batch(),
       .convolutions = state.convolutions.value_or(""),
       .recompute = config.recompute,
       .deterministic = config.deterministic,
       .cuda_graph = config.cuda_graph,
       .wait_limit = watch.wait_limit(),
       .before_host_memory =
           [&] { limits = require_memory(plan.config, graph, shard_group, job.grid, comm); }},
      job.grid, comm);
  watch.name_devices(compute->device_name());
  state.convolutions = compute->convolutions();
  const std::string summed_before = state.all_reduce.value_or("");
  state.all_reduce = compute->all_reduce();
  Engine& engine = compute->engine();
  if (recorder) engine.set_step_timer(step_trace.emplace(*recorder));
  Communicator& arena_comm = watch.watched(compute->arena_communicator(), "the arenas'");
  const auto parallel = make_parallel_state(plan.config, engine, comm, arena_comm, tail.size(),
                                            watched_groups(*compute, watch));
  const auto optimizer =
      compute->make_optimizer(plan.config, parallel->layout(), parallel->sum_over_parts());
  state.optimizer = std::string(optimizer->name());
  require_agreement(comm, layout_text(engine), "the parameters' layout",
                    "the processors differ, so the engine chose other layouts");
  start_model(start, plan.config, engine, *parallel, *optimizer, comm);
  start.reader.reset();

  const auto validation = open_validation_data(plan, comm);
  const auto staging =
      stage_data(plan.config, {.comm = comm, .grid = job.grid, .binding = job.binding, .model = {}},
                 {data.get(), validation.get()});
  LoaderOptions loading = loader_options(plan, engine.input_format());
  loading.batch_capacity = geometry.largest_micro_batch();
  const std::vector<int> near = cores_near(compute->numa_node(), job.binding.allowed);
  if (near.size() < job.binding.allowed.size()) {
    allow_cores(near);
    reporter.say(fmt::format("threads: on {} of {} cores, those of the GPU's NUMA node {}",
                             near.size(), job.binding.allowed.size(), compute->numa_node()));
  }
  loading.cores = near;
  loading.trace = recorder.get();
  const auto loader = make_loader(
      *data, loading,
      plan_training_batches(geometry, {.epoch = state.epoch, .position = state.position},
                            last_step - state.step));
  watch.board().set_marks(compute->phase_marks());
  TrainStep step(engine, *parallel, *optimizer, comm, *loader,
                 {.geometry = geometry,
                  .clip_grad_norm = config.clip_grad_norm,
                  .loss_scale = loss_scale_of(config, state),
                  .meets_in_programs = synchronised || config.shard != ShardMode::none,
                  .board = &watch.board(),
                  .trace = recorder.get()});
  collectively(comm, [&] {
    require_activations(
        plan.config, graph, shard_group, limits,
        {.bytes = step.activation_bytes(), .samples = geometry.largest_micro_batch()});
  });
  // Only rank 0 needs the time limit: its stop request reaches all ranks.
  const TimeAllowed time =
      comm.rank() == 0 ? time_allowed(begin, config.time_limit.seconds) : TimeAllowed{};
  StopTimer stop_timer(time.end, assumed_save_seconds(engine));
  std::optional<Evaluator> evaluator;
  if (validation) {
    evaluator.emplace(engine, *validation, comm,
                      EvaluatorOptions{.loader = loading,
                                       .batch_size = geometry.largest_micro_batch(),
                                       .board = &watch.board(),
                                       .trace = evaluation_row(recorder.get()),
                                       .meets_in_programs = !units.holds_parameters});
  }
  describe_start(reporter, {.plan = plan,
                            .geometry = geometry,
                            .engine = engine,
                            .parallel = *parallel,
                            .optimizer = *optimizer,
                            .data = data->info(),
                            .step = step,
                            .binding = job.binding,
                            .shard_group = shard_group});
  if (!validation) {
    reporter.say(plan.config.synthetic
                     ? std::string("no evaluation: synthetic data has no split val")
                     : fmt::format("no evaluation: no split val in {}", plan.config.val_data));
  }
  for (const std::string& note : compute->notes()) reporter.say(note);
  if (!state.all_reduce->empty()) reporter.say("all-reduce: " + *state.all_reduce);
  if (!summed_before.empty() && !state.all_reduce->empty() && summed_before != *state.all_reduce) {
    reporter.say(
        fmt::format("the all-reduce was {}, is {} now (sums may differ in their last bits)",
                    summed_before, *state.all_reduce));
  }
  if (!time.problem.empty()) reporter.warn(time.problem);
  if (time.end) {
    const std::chrono::duration<double> left = *time.end - StopTimer::Clock::now();
    reporter.say(fmt::format("time: {} left; saves and stops with 75 before",
                             format_duration(left.count())));
  }
  if (config.wait_for_debugger >= 0 && config.watchdog_seconds > 0) {
    reporter.say("the watchdog rests (--wait-for-debugger stops processes)");
  }
  if (staging) {
    for (const std::string& shortage : staging->shortages()) reporter.warn(shortage);
  }
  reporter.started(state, geometry.global_batch);

  std::optional<RunTrace> trace;
  if (recorder) {
    trace.emplace(RunTraceOptions{.steps = config.profile_steps,
                                  .run_dir = plan.config.run_dir,
                                  .comm = comm,
                                  .grid = job.grid},
                  *recorder, watch.board(), reporter);
  }
  TrainingLoop loop({.plan = plan,
                     .geometry = geometry,
                     .comm = comm,
                     .engine = engine,
                     .parallel = *parallel,
                     .shard_group = shard_group,
                     .optimizer = *optimizer,
                     .step = step,
                     .evaluator = evaluator ? &*evaluator : nullptr,
                     .checkpoints = checkpoints ? &*checkpoints : nullptr,
                     .directory = directory ? &*directory : nullptr,
                     .reporter = reporter,
                     .board = watch.board(),
                     .stop_timer = stop_timer,
                     .trace = trace ? &*trace : nullptr,
                     .hosts = watch.hosts(),
                     .class_names = data->info().class_names,
                     .cores = near,
                     .between_steps = [&] { report_staging(staging.get(), reporter); }},
                    state, last_step);
  TrainingResult result = loop.run();
  result.run_dir = plan.config.run_dir;
  return result;
}

}  // namespace lockstep
