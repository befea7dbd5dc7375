#include "describe_start.hpp"

#include "image_sizes.hpp"

#include "lockstep/compute/compute.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/name_list.hpp"
#include "lockstep/data/class_names.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/runtime/mpi_environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

void describe_model(RunReporter& reporter, const StartParts& parts) {
  const RunPlan& plan = parts.plan;
  const Graph& graph = parts.session.engine().graph();
  const std::string stem = stem_note(graph.name(), plan.model);
  reporter.say(fmt::format("{}: {} parameters{}, input {}x{}x{}, {} classes{}{}", graph.name(),
                           graph.parameter_count(), frozen_text(graph), plan.model.image.channels,
                           plan.model.image.height, plan.model.image.width, plan.model.classes,
                           stem.empty() ? "" : "; ", stem));
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

void describe_classes(RunReporter& reporter, const StartParts& parts) {
  const DatasetInfo& data = parts.data;
  if (data.classes - static_cast<std::int64_t>(data.empty_classes.size()) == 1) {
    reporter.warn(
        "all training samples are of one class (to answer with it is always right, so nothing is "
        "learned); train on two classes or more");
  }
  if (data.empty_classes.empty()) return;
  std::vector<std::string> empty;
  for (const std::int64_t label : data.empty_classes) {
    empty.push_back(class_text(data, label));
  }
  reporter.warn(fmt::format(
      "{} of {} classes {} no training sample ({}); check the labels, which count from 0",
      empty.size(), data.classes, empty.size() == 1 ? "has" : "have", listed(empty)));
}

void describe_data(RunReporter& reporter, const StartParts& parts) {
  const RunPlan& plan = parts.plan;
  const BatchGeometry& geometry = parts.geometry;
  const DatasetInfo& data = parts.data;
  const std::int64_t copies = plan.config.repeated_augmentation;
  const std::int64_t seen = (geometry.epoch_samples() + copies - 1) / copies;
  reporter.say(
      copies == 1
          ? fmt::format("data: {} ({} training samples; {} at each epoch's end stay unseen)",
                        data.directory, data.samples, data.samples - seen)
          : fmt::format("data: {} ({} training samples; {} copies each of {} of them an epoch)",
                        data.directory, data.samples, copies, seen));
  for (const std::string& note : data.notes) reporter.say("data: " + note);
  const ImageDescription images = describe_images(plan, &data, parts.validation);
  reporter.say("input: " + images.line);
  for (const std::string& warning : images.warnings) reporter.warn(warning);
  describe_classes(reporter, parts);
  if (data.encoded && plan.config.augment == Augment::none) {
    reporter.warn(
        "JPEG images, and --augment none (each epoch trains on the same pixels); resized-crop is "
        "usual for photographs");
  }
  reporter.say(fmt::format(
      "batch: {} = {} ranks x {} micro-steps x {}{}; {} steps an epoch", geometry.global_batch,
      geometry.world_size, geometry.accumulate, geometry.largest_micro_batch(),
      geometry.largest_micro_batch() * geometry.world_size * geometry.accumulate ==
              geometry.global_batch
          ? ""
          : " or one less",
      geometry.steps_per_epoch()));
}

void describe_engine(RunReporter& reporter, const StartParts& parts) {
  const RunPlan& plan = parts.plan;
  const BatchGeometry& geometry = parts.geometry;
  const ParallelState& parallel = parts.session.parallel();
  const int shard_group = parts.session.shard_group();
  const std::vector<int>& cores = parts.binding.allowed;
  const bool shows_binding = parts.session.compute().device_name().empty() || cores.empty();
  reporter.say(fmt::format(
      "engine: {}; {}", parts.session.engine().description(),
      shows_binding ? parts.binding.text : "threads of the host on cores " + core_list(cores)));
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  const StateBytes& bytes = parts.bytes;
  const bool sharded = plan.config.shard != ShardMode::none;
  reporter.say(fmt::format(
      "memory a rank: {:.1f} MiB activations, {:.1f} MiB parameters, {:.1f} MiB gradients, {:.1f} "
      "MiB optimizer state{}; {} {}{}{}",
      mib(parts.steps.activation_bytes()), mib(bytes.parameters), mib(bytes.gradients),
      mib(bytes.optimizer),
      bytes.copy == 0 ? "" : fmt::format(", {:.1f} MiB copy to save", mib(bytes.copy)),
      parallel.reductions(), sharded ? "unit" : "bucket", parallel.reductions() == 1 ? "" : "s",
      sharded ? fmt::format(" sharded over {} rank{}{}", shard_group, shard_group == 1 ? "" : "s",
                            communication_note(plan.config, geometry.world_size))
              : fmt::format(" of gradients{}", reduction_note(plan.config, geometry.world_size))));
  if (parts.binding.warning) reporter.warn(*parts.binding.warning);
}

void describe_local_sgd(RunReporter& reporter, const Config& config) {
  if (config.sync_every == 0) return;
  reporter.say(fmt::format(
      "local SGD{}: parameters{} are averaged every {} steps and at epoch ends; saves, evaluations "
      "and stops wait for an average",
      config.sync_start > 0 ? fmt::format(" after {} epochs", config.sync_start) : "",
      config.sync_momentum == SyncMomentum::average ? " and optimizer state" : "",
      config.sync_every));
}

void describe_evaluation(RunReporter& reporter, const StartParts& parts) {
  const RunPlan& plan = parts.plan;
  if (parts.validation == nullptr) {
    reporter.say(plan.config.synthetic
                     ? std::string("no evaluation: synthetic data has no split val")
                     : fmt::format("no evaluation: no split val in {}", plan.config.val_data));
  }
  if (parts.validation != nullptr && parts.resizes_to_evaluate) {
    const ImageShape image = plan.evaluation_image;
    reporter.say(
        fmt::format("evaluation: input {}x{}x{}", image.channels, image.height, image.width));
  }
}

void describe_numerics(RunReporter& reporter, const Numerics& now, const Numerics& checkpoints) {
  if (!now.all_reduce.empty()) reporter.say("all-reduce: " + now.all_reduce);
  const auto compare = [&](const char* what, const std::string& before, const std::string& after,
                           const char* result) {
    if (before.empty() || after.empty() || before == after) return;
    reporter.say(fmt::format("the {} was {}, is {} now ({} may differ in their last bits)", what,
                             before, after, result));
  };
  compare("all-reduce", checkpoints.all_reduce, now.all_reduce, "sums");
  compare("backend", checkpoints.backend, now.backend, "results");
}

void describe_end(RunReporter& reporter, const StartParts& parts) {
  const TimeAllowed& time = parts.time;
  for (const std::string& problem : time.problems) reporter.warn(problem);
  if (!time.end) return;
  const std::chrono::duration<double> left = *time.end - StopTimer::Clock::now();
  reporter.say(
      fmt::format("time: {} left, until {} ({}); saves and stops with 75 about {} before that",
                  format_duration(left.count()), clock_text(*time.end), time.source,
                  format_duration(parts.stop_seconds)));
}

}  // namespace

void describe_start(RunReporter& reporter, const StartParts& parts) {
  const Config& config = parts.plan.config;
  describe_model(reporter, parts);
  describe_data(reporter, parts);
  describe_engine(reporter, parts);
  describe_local_sgd(reporter, config);
  if (parts.resizes) reporter.say(parts.steps.description());
  describe_evaluation(reporter, parts);
  for (const std::string& note : parts.session.compute().notes()) reporter.say(note);
  describe_numerics(reporter, parts.numerics, parts.checkpoints_numerics);
  describe_end(reporter, parts);
  if (config.wait_for_debugger >= 0 && config.watchdog_seconds > 0) {
    reporter.say("watchdog disabled (--wait-for-debugger stops processes)");
  }
  if (parts.staging == nullptr) return;
  if (const auto& memory = parts.staging->memory(); !memory.empty()) {
    reporter.say(memory.size() == 1 ? memory.front()
                                    : fmt::format("{}; {} more nodes copy into memory",
                                                  memory.front(), memory.size() - 1));
  }
  for (const std::string& shortage : parts.staging->shortages()) reporter.warn(shortage);
}

void report_start(RunReporter& reporter, const StartParts& parts, const TrainingState& state,
                  const StartClock& clock) {
  reporter.note("start: " + clock.text());
  if (const std::string transports = mpi_transports(); !transports.empty()) {
    reporter.note(fmt::format("MPI: transports {} (all ranks are on one node)", transports));
  }
  const StateBytes& bytes = parts.bytes;
  reporter.started(state, {.epoch_samples = parts.geometry.epoch_samples(),
                           .changes = parts.changes,
                           .hosts = parts.hosts,
                           .engine = parts.session.engine().description(),
                           .threads = parts.binding.text,
                           .on_gpus = !parts.session.compute().bus_id().empty(),
                           .memory = {.activations = parts.steps.activation_bytes(),
                                      .parameters = bytes.parameters,
                                      .gradients = bytes.gradients,
                                      .optimizer = bytes.optimizer,
                                      .copy = bytes.copy},
                           .phases = clock.times()});
}

void describe_untrained(RunReporter& reporter, const DatasetInfo& train,
                        const DatasetInfo& validation) {
  std::vector<std::string> untrained;
  for (std::int64_t label = 0; label < validation.classes; ++label) {
    if (has_samples(validation, label) && !has_samples(train, label)) {
      untrained.push_back(class_text(validation, label));
    }
  }
  if (untrained.empty()) return;
  reporter.warn(fmt::format(
      "validation has samples of {} class{} without a training sample ({}); check that both splits "
      "number the classes alike, from 0",
      untrained.size(), untrained.size() == 1 ? "" : "es", listed(untrained)));
}

void describe_resume(RunReporter& reporter, const RunStart& from, const TrainingState& now,
                     const BatchGeometry& geometry) {
  const TrainingState& stored = *from.state;
  reporter.say(fmt::format("resuming from {} (step {}, epoch {}, position {}; written by {} ranks)",
                           from.path, stored.step, stored.epoch, stored.position,
                           stored.world_size));
  if (now.epoch != stored.epoch) {
    reporter.say(fmt::format("{} samples of epoch {} are skipped (fewer than a batch of {})",
                             geometry.samples - stored.position, stored.epoch + 1,
                             geometry.global_batch));
  }
}

void describe_average(RunReporter& reporter, const Config& config, const RunStart& from) {
  const bool is_stored = !from.reader->ema().empty();
  if (config.ema_decay > 0 && !is_stored) {
    reporter.say(fmt::format("the average starts from the weights of step {} ({} holds no average)",
                             from.state->step, from.path));
  }
  if (config.ema_decay == 0 && is_stored) {
    reporter.warn(
        fmt::format("the average of the weights in {} is not continued (--ema-decay is "
                    "0); set it to continue the average",
                    from.path));
  }
}

Numerics Numerics::of(const TrainingState& state) {
  return {.backend = state.backend.value_or(""), .all_reduce = state.all_reduce.value_or("")};
}

}  // namespace lockstep
