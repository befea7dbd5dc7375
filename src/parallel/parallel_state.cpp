#include "lockstep/parallel/parallel_state.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/shard_plan.hpp"

#include <utility>
#include <vector>

namespace lockstep {

UnitOptions unit_options(const Config& config, const Graph& graph, int ranks) {
  if (config.shard == ShardMode::none) return {};
  std::vector<int> unit_of = plan_units(graph, config.shard_unit);
  const bool merges =
      config.shard == ShardMode::optimizer && config.shard_unit.by == ShardUnit::By::automatic;
  if (merges) {
    unit_of = merge_units(std::move(unit_of), graph,
                          static_cast<std::int64_t>(bucket_bytes(config) / sizeof(float)));
  }
  const Precision parameters = parameter_type(config);
  return {
      .rule = {.unit_of = std::move(unit_of),
               .multiple = arena_alignment * static_cast<std::size_t>(ranks),
               .vectors_apart = parameters != Precision::fp32},
      .holds_parameters = config.shard == ShardMode::optimizer || config.shard == ShardMode::grad,
      .holds_gradients = config.shard == ShardMode::optimizer ||
                         (config.accumulate_full_gradients && config.accumulate > 1),
      .parameters = parameters};
}

std::unique_ptr<ParallelState> make_parallel_state(const Config& config, Engine& engine,
                                                   const ShardComms& comms, std::size_t tail_size) {
  if (config.shard == ShardMode::none) {
    return make_replicated_state(engine, comms.group_host, comms.all,
                                 {.tail_size = tail_size,
                                  .bucket_bytes = bucket_bytes(config),
                                  .reduce_dtype = reduce_dtype(config)});
  }
  return make_sharded_state(engine, comms,
                            {.tail_size = tail_size,
                             .accumulates = config.accumulate > 1,
                             .reduce_dtype = reduce_dtype(config),
                             .parameters = parameter_type(config)});
}

}  // namespace lockstep
