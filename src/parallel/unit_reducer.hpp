#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/cast_buffer.hpp"
#include "lockstep/engine/engine_memory.hpp"
#include "lockstep/parallel/shard_plan.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

class Engine;

/// Reduces the gradients of units in fp32 or a 16-bit type. With 16 bits, each rank rounds its
/// gradients once, and each addition rounds again.
class UnitReducer final {
 public:
  struct Options {
    ElementType type = ElementType::f32;  ///< or bf16 or f16
    bool all_at_once = false;  ///< all units may be in flight, else at most reductions_in_flight
  };
  /// `replicas` may be null.
  UnitReducer(Engine& engine, const ShardPlan& plan, Communicator& group, Communicator* replicas,
              const Options& options);

  /// Local gradients: this rank's shards of all units.
  using Local = std::shared_ptr<ArenaMemory>;
  /// Reduce-scatters a unit's gradients, in the engine's memory, over the group; this rank's shard
  /// in `local` is valid after the request is done and end() has returned.
  [[nodiscard]] Request start(std::size_t unit, std::span<const float> gradients,
                              const Local& local);
  void end(std::size_t unit, const Local& local);
  /// All-reduces the shard over the replicas, in place.
  [[nodiscard]] Request start_over_replicas(std::size_t unit, const Local& local);
  void end_over_replicas(std::size_t unit, const Local& local);

  [[nodiscard]] std::size_t bytes() const noexcept { return 2 * (sent_values_ + local_values_); }

 private:
  [[nodiscard]] std::span<float> shard_of(std::size_t unit, const Local& local) const {
    return plan_.local().units[unit].in(local->values());
  }
  [[nodiscard]] MutableBuffer cast_shard(std::size_t unit);
  void load(std::size_t unit, const Local& local) {
    local_->load(plan_.local().units[unit].begin, shard_of(unit, local));
  }

  const ShardPlan& plan_;
  MemoryOwner engine_memory_;
  Communicator& group_;
  Communicator* replicas_;
  Options options_;
  bool casts_in_group_;
  bool casts_over_replicas_;
  std::size_t largest_ = 0;  ///< unit, in values
  std::size_t sent_values_ = 0;
  std::size_t local_values_ = 0;
  std::shared_ptr<CastBuffer> sent_;   ///< all units, or slots for those in flight
  std::shared_ptr<CastBuffer> local_;  ///< this rank's shard of each unit
};

}  // namespace lockstep
