// What a run says of itself at its start.
#include "image_sizes.hpp"
#include "lockstep/core/name_list.hpp"
#include "lockstep/data/class_names.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

std::string_view reduction_note(const Config& config, int world_size) noexcept {
  const ElementType type = reduce_dtype(config);
  if (type == ElementType::f32) return "";
  if (world_size == 1) return ", not reduced (one rank)";
  return type == ElementType::f16 ? ", reduced as fp16" : ", reduced as bf16";
}

std::string communication_note(const Config& config, int world_size) {
  const Precision weights = parameter_type(config);
  if (world_size == 1 || (weights == Precision::fp32 && reduce_dtype(config) == ElementType::f32)) {
    return "";
  }
  const ElementType type = reduce_dtype(config);
  const std::string_view gradients = type == ElementType::f32   ? "fp32"
                                     : type == ElementType::f16 ? "fp16"
                                                                : "bf16";
  return fmt::format("; communication dtype: weights {}, gradients {}", to_string(weights),
                     gradients);
}

/// " (1234 frozen)", or nothing.
std::string frozen_text(const Graph& graph) {
  std::int64_t frozen = 0;
  for (const Parameter& parameter : graph.parameters()) {
    if (parameter.is_frozen()) frozen += parameter.shape.elements();
  }
  return frozen == 0 ? "" : fmt::format(" ({} frozen)", frozen);
}

/// "12", or with its name "0 "cat"".
std::string class_text(const DatasetInfo& data, std::int64_t label) {
  const auto index = static_cast<std::size_t>(label);
  if (index >= data.class_names.size()) return std::to_string(label);
  return fmt::format("{} {}", label, quoted_class(data.class_names[index]));
}

bool has_samples(const DatasetInfo& data, std::int64_t label) {
  return label < data.classes && !std::ranges::binary_search(data.empty_classes, label);
}

}  // namespace

void Run::describe_model() {
  const RunPlan& plan = plan_.plan;
  const Graph& network = graph();
  const std::string stem = stem_note(network.name(), plan.model);
  reporter_->say(fmt::format("{}: {} parameters{}, input {}x{}x{}, {} classes{}{}", network.name(),
                             network.parameter_count(), frozen_text(network),
                             plan.model.image.channels, plan.model.image.height,
                             plan.model.image.width, plan.model.classes, stem.empty() ? "" : "; ",
                             stem));
}

void Run::describe_classes() {
  const DatasetInfo& training = data().info();
  if (training.classes - static_cast<std::int64_t>(training.empty_classes.size()) == 1) {
    reporter_->warn(
        "all training samples are of one class (to answer with it is always right, so nothing is "
        "learned); train on two classes or more");
  }
  if (training.empty_classes.empty()) return;
  std::vector<std::string> empty;
  for (const std::int64_t label : training.empty_classes) {
    empty.push_back(class_text(training, label));
  }
  reporter_->warn(fmt::format(
      "{} of {} classes {} no training sample ({}); check the labels, which count from 0",
      empty.size(), training.classes, empty.size() == 1 ? "has" : "have", listed(empty)));
}

void Run::describe_data() {
  const RunPlan& plan = plan_.plan;
  const DatasetInfo& training = data().info();
  const std::int64_t copies = plan.config.repeated_augmentation;
  const std::int64_t seen = (geometry_.epoch_samples() + copies - 1) / copies;
  reporter_->say(
      copies == 1
          ? fmt::format("data: {} ({} training samples; {} at each epoch's end stay unseen)",
                        training.directory, training.samples, training.samples - seen)
          : fmt::format("data: {} ({} training samples; {} copies each of {} of them an epoch)",
                        training.directory, training.samples, copies, seen));
  for (const std::string& note : training.notes) reporter_->say("data: " + note);
  const ImageDescription images =
      describe_images(plan, &training, validation_ ? &validation_->info() : nullptr);
  reporter_->say("input: " + images.line);
  for (const std::string& warning : images.warnings) reporter_->warn(warning);
  describe_classes();
  if (training.encoded && plan.config.augment == Augment::none) {
    reporter_->warn(
        "JPEG images, and --augment none (each epoch trains on the same pixels); resized-crop is "
        "usual for photographs");
  }
  reporter_->say(fmt::format(
      "batch: {} = {} ranks x {} micro-steps x {}{}; {} steps an epoch", geometry_.global_batch,
      geometry_.world_size, geometry_.accumulate, geometry_.largest_micro_batch(),
      geometry_.largest_micro_batch() * geometry_.world_size * geometry_.accumulate ==
              geometry_.global_batch
          ? ""
          : " or one less",
      geometry_.steps_per_epoch()));
}

void Run::describe_engine() {
  const RunPlan& plan = plan_.plan;
  const ParallelState& parallel = session_->parallel();
  const int shard_group = session_->shard_group();
  const std::vector<int>& cores = job_.binding.allowed;
  const bool shows_binding = session_->compute().device_name().empty() || cores.empty();
  reporter_->say(fmt::format(
      "engine: {}; {}", session_->engine().description(),
      shows_binding ? job_.binding.text : "threads of the host on cores " + core_list(cores)));
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  const StateBytes bytes = state_bytes();
  const bool sharded = plan.config.shard != ShardMode::none;
  const std::size_t units = parallel.step_end().units;
  reporter_->say(fmt::format(
      "memory a rank: {:.1f} MiB activations, {:.1f} MiB parameters, {:.1f} MiB gradients, {:.1f} "
      "MiB optimizer state{}; {} {}{}{}",
      mib(steps_->activation_bytes()), mib(bytes.parameters), mib(bytes.gradients),
      mib(bytes.optimizer),
      bytes.copy == 0 ? "" : fmt::format(", {:.1f} MiB copy to save", mib(bytes.copy)), units,
      sharded ? "unit" : "bucket", units == 1 ? "" : "s",
      sharded ? fmt::format(" sharded over {} rank{}{}", shard_group, shard_group == 1 ? "" : "s",
                            communication_note(plan.config, geometry_.world_size))
              : fmt::format(" of gradients{}", reduction_note(plan.config, geometry_.world_size))));
  if (job_.binding.warning) reporter_->warn(*job_.binding.warning);
}

void Run::describe_local_sgd() {
  const Config& config = plan_.plan.config;
  if (config.sync_every == 0) return;
  reporter_->say(
      fmt::format("local SGD{}: parameters{} are averaged every {} steps and at epoch ends; saves, "
                  "evaluations and stops wait for an average",
                  config.sync_start > 0 ? fmt::format(" after {} epochs", config.sync_start) : "",
                  config.sync_momentum == SyncMomentum::average ? " and optimizer state" : "",
                  config.sync_every));
}

void Run::describe_evaluation() {
  const RunPlan& plan = plan_.plan;
  if (validation_ == nullptr) {
    reporter_->say(plan.config.synthetic
                       ? std::string("no evaluation: synthetic data has no split val")
                       : fmt::format("no evaluation: no split val in {}", plan.config.val_data));
  } else if (evaluation_graph_) {
    const ImageShape image = plan.evaluation_image;
    reporter_->say(
        fmt::format("evaluation: input {}x{}x{}", image.channels, image.height, image.width));
  }
}

void Run::describe_numerics() {
  const std::string& all_reduce = *state_.all_reduce;
  if (!all_reduce.empty()) reporter_->say("all-reduce: " + all_reduce);
  const auto compare = [&](const char* what, const std::string& before, const std::string& after,
                           const char* result) {
    if (before.empty() || after.empty() || before == after) return;
    reporter_->say(fmt::format("the {} was {}, is {} now ({} may differ in their last bits)", what,
                               before, after, result));
  };
  compare("all-reduce", checkpoints_all_reduce_, all_reduce, "sums");
  compare("backend", checkpoints_backend_, *state_.backend, "results");
}

void Run::describe_end() {
  for (const std::string& problem : time_.problems) reporter_->warn(problem);
  if (!time_.end) return;
  const std::chrono::duration<double> left = *time_.end - StopTimer::Clock::now();
  reporter_->say(
      fmt::format("time: {} left, until {} ({}); saves and stops with 75 about {} before that",
                  format_duration(left.count()), clock_text(*time_.end), time_.source,
                  format_duration(stop_timer_->needed({}))));
}

StateBytes Run::state_bytes() {
  return session_->parallel().bytes(session_->optimizer().slot_names().size());
}

/// Reports the model, the data, the hardware, the memory that a rank needs, evaluations, what
/// differs from the checkpoint, and when the run stops.
void Run::describe() {
  const Config& config = plan_.plan.config;
  describe_model();
  describe_data();
  describe_engine();
  describe_local_sgd();
  if (graphs_.size() > 1) reporter_->say(steps_->description());
  describe_evaluation();
  for (const std::string& note : session_->compute().notes()) reporter_->say(note);
  describe_numerics();
  describe_end();
  if (config.wait_for_debugger >= 0 && config.watchdog_seconds > 0) {
    reporter_->say("watchdog disabled (--wait-for-debugger stops processes)");
  }
  if (!staging_) return;
  if (const auto& memory = staging_->memory(); !memory.empty()) {
    reporter_->say(memory.size() == 1 ? memory.front()
                                      : fmt::format("{}; {} more nodes copy into memory",
                                                    memory.front(), memory.size() - 1));
  }
  for (const std::string& shortage : staging_->shortages()) reporter_->warn(shortage);
}

/// Reports the end of the start, and how long its phases took.
void Run::report_start() {
  start_clock_.enter("training");
  reporter_->note("start: " + start_clock_.text());
  if (const std::string transports = mpi_transports(); !transports.empty()) {
    reporter_->note(fmt::format("MPI: transports {} (all ranks are on one node)", transports));
  }
  const StateBytes bytes = state_bytes();
  reporter_->started(state_, {.epoch_samples = geometry_.epoch_samples(),
                              .changes = changes_,
                              .hosts = watch_.hosts(),
                              .engine = session_->engine().description(),
                              .threads = job_.binding.text,
                              .on_gpus = !session_->compute().bus_id().empty(),
                              .memory = {.activations = steps_->activation_bytes(),
                                         .parameters = bytes.parameters,
                                         .gradients = bytes.gradients,
                                         .optimizer = bytes.optimizer,
                                         .copy = bytes.copy},
                              .phases = start_clock_.times()});
}

/// Warns of classes that are evaluated and never trained.
void Run::describe_untrained() {
  std::vector<std::string> untrained;
  for (std::int64_t label = 0; label < validation_->info().classes; ++label) {
    if (has_samples(validation_->info(), label) && !has_samples(data().info(), label)) {
      untrained.push_back(class_text(validation_->info(), label));
    }
  }
  if (untrained.empty()) return;
  reporter_->warn(
      fmt::format("validation has samples of {} class{} without a training sample ({}); check that "
                  "both splits number the classes alike, from 0",
                  untrained.size(), untrained.size() == 1 ? "" : "es", listed(untrained)));
}

/// Reports the checkpoint that the run continues, and what is left out between it and the state
/// from which it goes on.
void Run::describe_resume() {
  const TrainingState& stored = *start_.state;
  reporter_->say(
      fmt::format("resuming from {} (step {}, epoch {}, position {}; written by {} ranks)",
                  start_.path, stored.step, stored.epoch, stored.position, stored.world_size));
  if (state_.epoch != stored.epoch) {
    reporter_->say(fmt::format("{} samples of epoch {} are skipped (fewer than a batch of {})",
                               geometry_.samples - stored.position, stored.epoch + 1,
                               geometry_.global_batch));
  }
}

/// Reports that the average of the weights starts at, or ends with, the checkpoint.
void Run::describe_average() {
  const bool is_stored = !start_.reader->ema().empty();
  const bool is_kept = plan_.plan.config.ema_decay > 0;
  if (is_kept && !is_stored) {
    reporter_->say(
        fmt::format("the average starts from the weights of step {} ({} holds no average)",
                    start_.state->step, start_.path));
  }
  if (!is_kept && is_stored) {
    reporter_->warn(
        fmt::format("the average of the weights in {} is not continued (--ema-decay is 0); set it "
                    "to continue the average",
                    start_.path));
  }
}

}  // namespace lockstep
