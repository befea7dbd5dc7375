#include "describe_start.hpp"

#include "lockstep/parallel/shard_cost.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace lockstep {
namespace {

std::string_view wire_note(const Config& config, int world_size) noexcept {
  const ElementType wire = wire_type(config);
  if (wire == ElementType::f32) return "";
  if (world_size == 1) return ", which go nowhere from one rank";
  return wire == ElementType::f16 ? ", which travel as fp16" : ", which travel as bf16";
}

std::string travel_note(const Config& config, int world_size) {
  const Precision weights = parameter_type(config);
  if (world_size == 1 || (weights == Precision::fp32 && wire_type(config) == ElementType::f32)) {
    return "";
  }
  const ElementType wire = wire_type(config);
  const std::string_view gradients = wire == ElementType::f32   ? "fp32"
                                     : wire == ElementType::f16 ? "fp16"
                                                                : "bf16";
  return fmt::format("; weights travel as {}, gradients as {}", to_string(weights), gradients);
}

}  // namespace

void describe_start(RunReporter& reporter, const StartParts& parts) {
  const auto& [plan, geometry, engine, parallel, optimizer, data, step, binding, sharing] = parts;
  reporter.say(fmt::format("{}: {} parameters, input {}x{}x{}, {} classes", engine.graph().name(),
                           engine.graph().parameter_count(), plan.model.image.channels,
                           plan.model.image.height, plan.model.image.width, plan.model.classes));
  reporter.say(fmt::format("data: {} ({} training samples; {} at each epoch's end stay unseen)",
                           data.directory, data.samples, data.samples - geometry.epoch_samples()));
  for (const std::string& note : data.notes) reporter.say("data: " + note);
  reporter.say(fmt::format(
      "batch: {} = {} ranks x {} micro-steps x {}{}; {} steps an epoch", geometry.global_batch,
      geometry.world_size, geometry.accumulate, geometry.largest_micro_batch(),
      geometry.largest_micro_batch() * geometry.world_size * geometry.accumulate ==
              geometry.global_batch
          ? ""
          : " or one less",
      geometry.steps_per_epoch()));
  reporter.say(fmt::format("engine: {}; {}", engine.description(), binding.text));
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
  const StateBytes bytes = parallel.bytes(optimizer.slot_names().size());
  const bool shared_out = plan.config.shard != ShardMode::none;
  reporter.say(fmt::format(
      "memory a rank: {:.1f} MiB activations, {:.1f} MiB parameters, {:.1f} MiB gradients, {:.1f} "
      "MiB optimizer state{}; {} {}{}{}",
      mib(step.activation_bytes()), mib(bytes.parameters), mib(bytes.gradients),
      mib(bytes.optimizer),
      bytes.copy == 0 ? "" : fmt::format(", {:.1f} MiB copy to save", mib(bytes.copy)),
      parallel.reductions(), shared_out ? "unit" : "bucket", parallel.reductions() == 1 ? "" : "s",
      shared_out ? fmt::format(" that {} rank{} share out{}", sharing, sharing == 1 ? "" : "s",
                               travel_note(plan.config, geometry.world_size))
                 : fmt::format(" of gradients{}", wire_note(plan.config, geometry.world_size))));
  if (binding.warning) reporter.warn(*binding.warning);
}

}  // namespace lockstep
