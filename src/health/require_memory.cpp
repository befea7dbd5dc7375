#include "lockstep/health/require_memory.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/shard_cost.hpp"

#include <algorithm>

namespace lockstep {
namespace {

/// Mean bytes per rank over the `processes` ranks of rank 0's host: only rank 0 has the copy
/// for a save. Computed before the engine exists, so without its padding.
StateBytes predicted(Config config, ShardMode mode, const Graph& graph, int ranks, int processes) {
  config.shard = mode;
  if (mode == ShardMode::hybrid) config.shard_group = ranks;
  const ArenaLayout layout =
      lay_out_without_padding(graph, unit_options(config, graph, ranks).rule);
  const ShardCost cost = shard_cost(config, layout, ranks, slot_count(config));
  StateBytes mean = cost.state;
  mean.copy /= static_cast<std::size_t>(processes);
  return mean;
}

double mib(std::size_t bytes) noexcept {
  return static_cast<double>(bytes) / 0x1p20;
}

std::string advice(const Config& config, const Graph& graph, int ranks,
                   std::span<const MemoryLimit> limits, const MemoryLimit& exceeded) {
  for (const ShardMode mode : {ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
    if (ranks == 1) continue;
    const auto needs = [&](const MemoryLimit& limit) {
      return predicted(config, mode, graph, ranks, limit.processes).total();
    };
    if (std::ranges::all_of(limits,
                            [&](const auto& limit) { return needs(limit) <= limit.bytes; })) {
      return fmt::format("use --shard {}, which needs {:.1f} MiB and its activations",
                         to_string(mode), mib(needs(exceeded)));
    }
  }
  return "use more ranks with --shard full, fewer of them a node, or a smaller network";
}

}  // namespace

void require_memory(const Config& config, const Graph& graph, int ranks,
                    std::span<const MemoryLimit> limits) {
  for (const MemoryLimit& limit : limits) {
    const StateBytes needs = predicted(config, config.shard, graph, ranks, limit.processes);
    if (needs.total() <= limit.bytes) continue;
    fail(ExitStatus::usage,
         "a rank needs {:.1f} MiB with --shard {} ({:.1f} parameters, {:.1f} gradients, {:.1f} "
         "optimizer state, {:.1f} {} to save; activations are extra), but may use {:.1f} MiB ({}); "
         "{}",
         mib(needs.total()), to_string(config.shard), mib(needs.parameters), mib(needs.gradients),
         mib(needs.optimizer), mib(needs.copy),
         limit.processes > 1 ? "as its share of copies" : "copy", mib(limit.bytes), limit.source,
         advice(config, graph, ranks, limits, limit));
  }
}

std::vector<MemoryLimit> require_memory(const Config& config, const Graph& graph, int ranks,
                                        const ProcessGrid& grid, Communicator& comm) {
  std::vector<MemoryLimit> limits;
  collectively(comm, [&] {
    limits = memory_left(grid.local_size);
    require_memory(config, graph, ranks, limits);
  });
  return limits;
}

void require_activations(const Config& config, const Graph& graph, int ranks,
                         std::span<const MemoryLimit> limits, const ActivationNeeds& needs) {
  for (const MemoryLimit& limit : limits) {
    const std::size_t state =
        predicted(config, config.shard, graph, ranks, limit.processes).total();
    if (state + needs.bytes <= limit.bytes) continue;
    fail(ExitStatus::usage,
         "a rank needs {:.1f} MiB ({:.1f} activations of {} samples in {}, and {:.1f} of "
         "parameters, gradients, optimizer state and copies with --shard {}), but may use {:.1f} "
         "MiB ({}); lower --batch-size and raise --accumulate as much{}",
         mib(state + needs.bytes), mib(needs.bytes), needs.samples, to_string(config.precision),
         mib(state), to_string(config.shard), mib(limit.bytes), limit.source,
         config.precision == Precision::fp32 ? ", or use --precision bf16" : "");
  }
}

}  // namespace lockstep
