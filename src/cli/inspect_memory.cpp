// Memory of a rank in a training run for each --shard: `inspect --model NAME --ranks N`.
#include "inspect_report.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {
namespace {

/// Null object for programs that are compiled but never run.
class NoExchange final : public UnitExchange {
 public:
  void start_reduction(std::size_t, std::span<const float>) override {}
  void await_reduction(std::size_t) override {}
  void progress() override {}
  void await(FunctionRef<bool()>) override {}
};

double mib(double bytes) {
  return bytes / 0x1p20;
}

constexpr std::array modes{ShardMode::none, ShardMode::optimizer, ShardMode::grad, ShardMode::full,
                           ShardMode::hybrid};

/// Layout and memory of the compiled network.
struct Planned {
  ArenaLayout layout;
  std::size_t bytes = 0;  ///< activations and gathered units
};

Planned plan_on_processors(const Graph& graph, const MemoryQuestion& question, const Config& config,
                           int shard_group) {
  const auto engine = make_cpu_engine(graph, {.threads = static_cast<int>(config.threads),
                                              .precision = config.precision,
                                              .convolutions = question.convolutions,
                                              .recompute = config.recompute,
                                              .units = unit_options(config, graph, shard_group)});
  NoExchange none;
  UnitExchange* const exchange = config.shard != ShardMode::none ? &none : nullptr;
  return {.layout = engine->layout(),
          .bytes = engine->compile_training(config.batch_size, exchange)->activation_bytes()};
}

/// One row of the table.
struct Row {
  ShardMode mode;
  ShardCost cost;
  std::size_t units;
  std::optional<std::size_t> activations;
  std::size_t gathered = 0;  ///< gathered units, in addition to activations

  [[nodiscard]] std::size_t total() const {
    return cost.state.total() + activations.value_or(0) + gathered;
  }
};

std::string text_of(const Row& row) {
  const auto cell = [](std::size_t bytes) {
    return fmt::format("{:.1f}", mib(static_cast<double>(bytes)));
  };
  const bool known = row.activations.has_value();
  return fmt::format(
      "  {:<10}{:>12}{:>12}{:>12}{:>14}{:>13}{:>12}{:>12}{:>14.1f}{}\n", to_string(row.mode),
      cell(row.cost.state.parameters), cell(row.cost.state.gradients),
      cell(row.cost.state.optimizer), cell(row.cost.state.copy),
      known ? cell(*row.activations) : "-", known ? cell(row.gathered) : "-", cell(row.total()),
      mib(row.cost.sent),
      row.mode == ShardMode::hybrid ? fmt::format("{:>18.1f}", mib(row.cost.sent_across)) : "");
}

Json json_of(const Row& row, int group) {
  Json json{{"shard", to_string(row.mode)},
            {"parameter_bytes", row.cost.state.parameters},
            {"gradient_bytes", row.cost.state.gradients},
            {"optimizer_bytes", row.cost.state.optimizer},
            {"copy_bytes", row.cost.state.copy},
            {"activation_bytes", nullptr},
            {"gathered_unit_bytes", nullptr},
            {"total_bytes", row.total()},
            {"sent_bytes_per_step", row.cost.sent},
            {"units", row.units}};
  if (row.activations) {
    json["activation_bytes"] = *row.activations;
    json["gathered_unit_bytes"] = row.gathered;
  }
  if (row.mode == ShardMode::hybrid) {
    json["shard_group"] = group;
    json["sent_to_other_groups_bytes_per_step"] = row.cost.sent_across;
  }
  return json;
}

std::string heading(const MemoryQuestion& question, bool groups) {
  return fmt::format(
      "MiB on rank 0 of {}, with a sharded model ({} samples a rank, {}; unit: {}{}{})\n"
      "  {:<10}{:>12}{:>12}{:>12}{:>14}{:>13}{:>12}{:>12}{:>14}{}\n",
      question.ranks, question.config.batch_size, to_string(question.config.precision),
      train_options().get(question.config, "shard-unit"),
      groups ? fmt::format("; hybrid: groups of {}", question.config.shard_group) : "",
      question.on_processors ? "; activations: a processor's"
                             : "; activations, a GPU's, come on top",
      "--shard", "parameters", "gradients", "optimizer", "copy to save", "activations", "gathered",
      "in all", "sent a step", groups ? fmt::format("{:>18}", "to other groups") : "");
}

}  // namespace

Report inspect_memory(const Graph& graph, const MemoryQuestion& question) {
  const auto group = static_cast<int>(question.config.shard_group);
  const bool groups = group > 0 && question.only.value_or(ShardMode::hybrid) == ShardMode::hybrid;
  Report report;
  report.text = heading(question, groups);
  std::size_t replicated = 0;
  for (const ShardMode mode : modes) {
    const bool hybrid = mode == ShardMode::hybrid;
    const bool asked = question.only.value_or(mode) == mode && (!hybrid || groups);
    if (!asked && mode != ShardMode::none) continue;
    Config config = question.config;
    config.shard = mode;
    const int shard_group = hybrid ? group : question.ranks;
    Planned planned;
    if (question.on_processors) {
      planned = plan_on_processors(graph, question, config, shard_group);
    } else {
      planned.layout =
          lay_out_without_padding(graph, unit_options(config, graph, shard_group).rule);
    }
    if (mode == ShardMode::none) replicated = planned.bytes;
    if (!asked) continue;
    Row row{.mode = mode,
            .cost = shard_cost(config, planned.layout, question.ranks, slot_count(config)),
            .units = planned.layout.units.size(),
            .activations = std::nullopt};
    if (question.on_processors) {
      row.activations = std::min(replicated, planned.bytes);
      row.gathered = planned.bytes - *row.activations;
    }
    report.text += text_of(row);
    report.json.push_back(json_of(row, group));
  }
  return report;
}

}  // namespace lockstep::cli
