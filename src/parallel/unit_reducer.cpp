#include "unit_reducer.hpp"

#include "element_precision.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "register_memory.hpp"

#include <algorithm>

namespace lockstep {

UnitReducer::UnitReducer(Engine& engine, const ShardPlan& plan, Communicator& group,
                         Communicator* replicas, const Options& options)
    : plan_(plan),
      engine_memory_(engine.arena()),
      group_(group),
      replicas_(replicas),
      options_(options),
      // One rank reduces nothing.
      casts_in_group_(options.type != ElementType::f32 && group.size() > 1),
      casts_over_replicas_(options.type != ElementType::f32 && replicas != nullptr &&
                           replicas->size() > 1) {
  const Precision type = precision_of(options.type);
  for (const ArenaUnit& unit : plan.unsharded().units) largest_ = std::max(largest_, unit.size());
  if (casts_in_group_) {
    sent_values_ = options.all_at_once ? plan.unsharded().size()
                                       : UnitExchange::reductions_in_flight * largest_;
    sent_ = engine.memory().make_cast_buffer(type, sent_values_);
  }
  if (casts_in_group_ || casts_over_replicas_) {
    local_values_ = plan.local().size();
    local_ = engine.memory().make_cast_buffer(type, local_values_);
  }
  register_values(group, sent_);
  if (casts_in_group_) register_values(group, local_);
  if (casts_over_replicas_) register_values(*replicas, local_);
}

MutableBuffer UnitReducer::cast_shard(std::size_t unit) {
  const ArenaUnit& local = plan_.local().units[unit];
  return {.data = local_->data(local.begin),
          .count = local.size(),
          .type = options_.type,
          .owner = local_};
}

Request UnitReducer::start(std::size_t unit, std::span<const float> gradients, const Local& local) {
  if (!casts_in_group_) {
    return group_.start_reduce_scatter_buffer(buffer_of(gradients, engine_memory_),
                                              buffer_of(shard_of(unit, local), local),
                                              ReduceOp::sum);
  }
  const std::size_t at = options_.all_at_once
                             ? plan_.unsharded().units[unit].begin
                             : unit % UnitExchange::reductions_in_flight * largest_;
  sent_->store(gradients, at);
  return group_.start_reduce_scatter_buffer(
      {.data = sent_->data(at), .count = gradients.size(), .type = options_.type, .owner = sent_},
      cast_shard(unit), ReduceOp::sum);
}

void UnitReducer::end(std::size_t unit, const Local& local) {
  if (casts_in_group_) load(unit, local);
}

Request UnitReducer::start_over_replicas(std::size_t unit, const Local& local) {
  const std::span<float> shard = shard_of(unit, local);
  if (!casts_over_replicas_) {
    return replicas_->start_all_reduce_buffer(buffer_of(shard, local), ReduceOp::sum);
  }
  local_->store(shard, plan_.local().units[unit].begin);
  return replicas_->start_all_reduce_buffer(cast_shard(unit), ReduceOp::sum);
}

void UnitReducer::end_over_replicas(std::size_t unit, const Local& local) {
  if (casts_over_replicas_) load(unit, local);
}

}  // namespace lockstep
