#include "lockstep/parallel/shard_cost.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/engine/unit_exchange.hpp"

#include <algorithm>
#include <cstdint>

namespace lockstep {
namespace {

/// Bytes of all parameters in the data type of the all-gather.
struct Gathered {
  double weights = 0;
  double vectors = 0;  ///< if they are a separate unit
};

Gathered gathered_bytes(const Config& config, const ArenaLayout& layout) {
  const UnitOptions units{.parameters = parameter_type(config)};
  Gathered bytes;
  for (const ArenaUnit& unit : layout.units) {
    const auto size = static_cast<double>(unit.size() * units.value_bytes(unit));
    (unit.in_fp32 ? bytes.vectors : bytes.weights) += size;
  }
  return bytes;
}

std::size_t largest_of(std::span<const ArenaUnit> units) {
  return std::ranges::max_element(units, {}, &ArenaUnit::size)->size();
}

}  // namespace

ElementType reduce_dtype(const Config& config) noexcept {
  const bool by_compression = config.reduce_dtype == CommunicationDtype::automatic;
  if (by_compression ? config.grad_compression == GradCompression::bf16
                     : config.reduce_dtype == CommunicationDtype::bf16) {
    return ElementType::bf16;
  }
  if (by_compression ? config.grad_compression == GradCompression::fp16
                     : config.reduce_dtype == CommunicationDtype::fp16) {
    return ElementType::f16;
  }
  return ElementType::f32;
}

Precision parameter_type(const Config& config) noexcept {
  const bool casts = config.precision == Precision::bf16 || config.precision == Precision::fp16;
  const bool sharded = config.shard != ShardMode::none;
  if (!casts || !sharded || config.param_dtype == CommunicationDtype::fp32) return Precision::fp32;
  return config.precision;
}

std::size_t bytes_to_save(const ArenaLayout& layout, std::size_t slots) {
  std::size_t largest = 0;
  for (const ArenaView& view : layout.views) largest = std::max(largest, view.size);
  return sizeof(float) * ((1 + slots) * layout.size() + largest);
}

ShardCost shard_cost(const Config& config, const ArenaLayout& layout, int ranks,
                     std::size_t slots) {
  const std::size_t unsharded = sizeof(float) * layout.size();
  const auto micro_steps = static_cast<double>(config.accumulate);
  const bool casts = reduce_dtype(config) != ElementType::f32;
  const double reduced = static_cast<double>(unsharded) / (casts ? 2 : 1);
  // In a reduce-scatter or an all-gather, a rank sends (ranks - 1) / ranks of the data.
  if (config.shard == ShardMode::none) {
    return {.state = {.parameters = unsharded,
                      .gradients = unsharded + (casts && ranks > 1 ? unsharded / 2 : 0),
                      .optimizer = slots * unsharded,
                      .copy = bytes_to_save(layout, slots)},
            .sent = 2 * static_cast<double>(ranks - 1) / ranks * reduced};
  }
  const bool hybrid = config.shard == ShardMode::hybrid;
  const int group = hybrid ? static_cast<int>(config.shard_group) : ranks;
  const int replicas = ranks / group;
  const double others = static_cast<double>(group - 1) / group;
  const std::size_t local = unsharded / static_cast<std::size_t>(group);
  const bool keeps_gradients = config.shard == ShardMode::optimizer ||
                               (config.accumulate_full_gradients && config.accumulate > 1);
  const bool adds_up = !keeps_gradients && config.accumulate > 1;
  ShardCost cost{.state = {.parameters = local,
                           .gradients = local,
                           .optimizer = slots * local,
                           .copy = bytes_to_save(layout, slots)}};
  cost.state.gradients += keeps_gradients ? unsharded : adds_up ? local : 0;
  if (casts && group > 1) {
    // Buffers of reductions in flight: all units, or at most reductions_in_flight of them.
    const std::size_t at_a_time = UnitExchange::reductions_in_flight * largest_of(layout.units);
    cost.state.gradients += keeps_gradients ? unsharded / 2 : sizeof(std::uint16_t) * at_a_time;
  }
  if (casts && ranks > 1) cost.state.gradients += local / 2;
  cost.sent = (keeps_gradients ? 1 : micro_steps) * others * reduced;
  const Gathered gathered = gathered_bytes(config, layout);
  const bool casts_parameters = parameter_type(config) != Precision::fp32;
  if (config.shard == ShardMode::full || hybrid) {
    // Backward reuses the unit that forward used last, and all vectors, without another all-gather.
    const double kept =
        static_cast<double>(layout.units.front().size()) * (casts_parameters ? 2 : 4);
    cost.sent += micro_steps * others * (2 * gathered.weights - kept + gathered.vectors);
  } else {
    const double held = gathered.weights + gathered.vectors;
    cost.state.parameters = casts_parameters ? local + static_cast<std::size_t>(held) : unsharded;
    cost.sent += others * held;
  }
  if (hybrid) {
    cost.sent_across = 2 * static_cast<double>(replicas - 1) / replicas * reduced / group;
    cost.sent += cost.sent_across;
  }
  return cost;
}

}  // namespace lockstep
