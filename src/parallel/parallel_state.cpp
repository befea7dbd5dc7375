#include "lockstep/parallel/parallel_state.hpp"

#include "lockstep/parallel/shard_plan.hpp"

namespace lockstep {
namespace {

ElementType wire_type(GradCompression compression) noexcept {
  switch (compression) {
    case GradCompression::bf16:
      return ElementType::bf16;
    case GradCompression::fp16:
      return ElementType::f16;
    case GradCompression::none:
      break;
  }
  return ElementType::f32;
}

}  // namespace

UnitOptions unit_options(const Config& config, const Graph& graph, int ranks) {
  if (config.shard == ShardMode::none) return {};
  return {
      .rule = {.unit_of = plan_units(graph, config.shard_unit),
               .multiple = arena_alignment * static_cast<std::size_t>(ranks)},
      .holds_parameters = config.shard == ShardMode::optimizer || config.shard == ShardMode::grad,
      .holds_gradients = config.shard == ShardMode::optimizer ||
                         (config.accumulate_full_gradients && config.accumulate > 1)};
}

std::unique_ptr<ParallelState> make_parallel_state(const Config& config, Engine& engine,
                                                   Communicator& host, Communicator& comm,
                                                   std::size_t tail_size,
                                                   const HybridComms& hybrid) {
  if (config.shard == ShardMode::none) {
    return make_replicated_state(
        engine, host, comm,
        {.tail_size = tail_size,
         .bucket_bytes = static_cast<std::size_t>(config.bucket_mb * 0x1p20),
         .wire = wire_type(config.grad_compression)});
  }
  const ShardingOptions options{.tail_size = tail_size, .accumulates = config.accumulate > 1};
  if (config.shard != ShardMode::hybrid) {
    return make_sharded_state(engine, {.all = comm, .group_host = host, .group = comm}, options);
  }
  return make_sharded_state(engine,
                            {.all = comm,
                             .group_host = *hybrid.group_host,
                             .group = *hybrid.group,
                             .replicas_host = hybrid.replicas_host,
                             .replicas = hybrid.replicas},
                            options);
}

}  // namespace lockstep
