// What a rank of a training run needs, by --shard: `inspect --model NAME --ranks N`.
#include "inspect_report.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

namespace lockstep::cli {
namespace {

/// For programs that are never run.
class NoExchange final : public UnitExchange {
 public:
  void start_gather(std::size_t, std::span<std::byte>) override {}
  void await_gather(std::size_t) override {}
  void start_reduction(std::size_t, std::span<const float>) override {}
  void await_reduction(std::size_t) override {}
  void progress() override {}
  void await(FunctionRef<bool()>) override {}
};

double mib(double bytes) {
  return bytes / 0x1p20;
}

}  // namespace

Report inspect_memory(const Graph& graph, const MemoryQuestion& question) {
  constexpr std::array modes{std::pair{"none", ShardMode::none},
                             std::pair{"optimizer", ShardMode::optimizer},
                             std::pair{"grad", ShardMode::grad}, std::pair{"full", ShardMode::full},
                             std::pair{"hybrid", ShardMode::hybrid}};
  const auto group = static_cast<int>(question.config.shard_group);
  Report report;
  report.text = fmt::format(
      "MiB on rank 0, of {} that share out the model ({} samples a rank, {}; unit: {}{})\n"
      "  {:<10}{:>12}{:>12}{:>12}{:>14}{:>14}{:>12}{:>14}{}\n",
      question.ranks, question.batch_size, to_string(question.config.precision), question.unit,
      group > 0 ? fmt::format("; hybrid: groups of {}", group) : "", "--shard", "parameters",
      "gradients", "optimizer", "copy to save", "activations", "in all", "sent a step",
      group > 0 ? fmt::format("{:>18}", "to other groups") : "");
  for (const auto& [name, mode] : modes) {
    const bool hybrid = mode == ShardMode::hybrid;
    if (hybrid && group == 0) continue;
    Config config = question.config;
    config.shard = mode;
    const auto engine = make_cpu_engine(
        graph, {.threads = question.threads,
                .precision = config.precision,
                .convolutions = question.convolutions,
                .recompute = config.recompute != Recompute::none,
                .units = unit_options(config, graph, hybrid ? group : question.ranks)});
    NoExchange exchange;
    if (mode != ShardMode::none) engine->set_exchange(exchange);
    const auto program = engine->compile_training(question.batch_size);
    const ShardCost cost =
        shard_cost(config, engine->layout(), question.ranks, slot_count(config.optimizer));
    const auto activations = static_cast<double>(program->activation_bytes());
    const double total = static_cast<double>(cost.state.total()) + activations;
    report.text +=
        fmt::format("  {:<10}{:>12.1f}{:>12.1f}{:>12.1f}{:>14.1f}{:>14.1f}{:>12.1f}{:>14.1f}{}\n",
                    name, mib(static_cast<double>(cost.state.parameters)),
                    mib(static_cast<double>(cost.state.gradients)),
                    mib(static_cast<double>(cost.state.optimizer)),
                    mib(static_cast<double>(cost.state.copy)), mib(activations), mib(total),
                    mib(cost.sent), hybrid ? fmt::format("{:>18.1f}", mib(cost.sent_across)) : "");
    report.json.push_back({{"shard", name},
                           {"parameter_bytes", cost.state.parameters},
                           {"gradient_bytes", cost.state.gradients},
                           {"optimizer_bytes", cost.state.optimizer},
                           {"copy_bytes", cost.state.copy},
                           {"activation_bytes", program->activation_bytes()},
                           {"total_bytes", static_cast<std::uint64_t>(total)},
                           {"sent_bytes_per_step", cost.sent},
                           {"units", engine->layout().units.size()}});
    if (!hybrid) continue;
    report.json.back()["shard_group"] = group;
    report.json.back()["sent_to_other_groups_bytes_per_step"] = cost.sent_across;
  }
  return report;
}

}  // namespace lockstep::cli
