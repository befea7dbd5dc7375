#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace lockstep::checkpoint_format {

inline constexpr const char* format = "lockstep-checkpoint";
/// 1: `/state` without `convolutions`; 2: without `all_reduce`; 3: without `backend`. Additions
/// to its checksum need a new version, so that older programs reject the file as too new.
inline constexpr std::int64_t version = 4;
inline constexpr const char* checksum = "crc32c";
inline constexpr const char* optimizer_group = "/optimizer";

/// Calls `visit(attribute name, field)` for every field of `/state`. An empty std::optional field
/// has no attribute and no line in the checksum.
template <typename State, typename Visitor>
void visit_fields(State& state, Visitor&& visit) {
  visit("step", state.step);
  visit("epoch", state.epoch);
  visit("position", state.position);
  visit("samples", state.samples);
  visit("seed", state.seed);
  visit("world_size", state.world_size);
  visit("global_batch", state.global_batch);
  visit("epoch_loss", state.epoch_loss);
  for (std::size_t i = 0; i < training_metrics; ++i) {
    const std::string name = "epoch_" + std::string(metric_table[i].name);
    visit(name.c_str(), state.epoch_metrics[i]);
  }
  visit("epoch_samples", state.epoch_samples);
  visit("best_top1", state.best_top1);
  visit("best_step", state.best_step);
  visit("last_eval_step", state.last_eval_step);
  visit("loss_scale", state.loss_scale);
  visit("loss_scale_good_steps", state.loss_scale_good_steps);
  visit("skipped_steps", state.skipped_steps);
  visit("data_identity", state.data_identity);
  visit("model_identity", state.model_identity);
  visit("model", state.model);
  visit("optimizer", state.optimizer);
  visit("config", state.config);
  visit("version", state.version);
  visit("convolutions", state.convolutions);
  visit("all_reduce", state.all_reduce);
  visit("backend", state.backend);
}

/// CRC-32C of the canonical state: lines `name=value`, sorted, each with a newline; integers in
/// decimal, doubles as printf's %.17g, text unchanged.
[[nodiscard]] std::uint32_t state_checksum(const TrainingState& state);
[[nodiscard]] std::uint32_t values_checksum(std::span<const float> values) noexcept;

}  // namespace lockstep::checkpoint_format
