#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/shard_plan.hpp"

#include <cstddef>
#include <memory>
#include <span>

namespace lockstep {

/// How sums of units' gradients travel: as they are, or rounded to 16 bits, of which each rank
/// rounds once and each meeting of two ranks' sums once more.
class ReductionWire final {
 public:
  struct Options {
    ElementType type = ElementType::f32;  ///< or bf16 or f16
    bool all_at_once = false;  ///< all units may be on their way, else as many as a program's
  };
  /// `replicas` may be null.
  ReductionWire(Engine& engine, const ShardPlan& plan, Communicator& group, Communicator* replicas,
                const Options& options);

  /// Sums a unit's gradients over the group; `own` holds this rank's part of it when the request is
  /// done and end() was called.
  [[nodiscard]] Request start(std::size_t unit, std::span<const float> gradients,
                              std::span<float> own);
  void end(std::size_t unit, std::span<float> own);
  /// The same for the part over the replicas, in place.
  [[nodiscard]] Request start_over_replicas(std::size_t unit, std::span<float> own);
  void end_over_replicas(std::size_t unit, std::span<float> own);

  /// What travels, where it may still be under way.
  void keep_until_exit() const;

  [[nodiscard]] std::size_t bytes() const noexcept { return 2 * (sent_values_ + own_values_); }

 private:
  [[nodiscard]] MutableBuffer own_part(std::size_t unit);

  const ShardPlan& plan_;
  Communicator& group_;
  Communicator* replicas_;
  Options options_;
  bool narrow_in_group_;
  bool narrow_over_replicas_;
  std::size_t largest_ = 0;  ///< unit, in values
  std::size_t sent_values_ = 0;
  std::size_t own_values_ = 0;
  std::shared_ptr<NarrowBuffer> sent_;  ///< units, or slots for some of them
  std::shared_ptr<NarrowBuffer> own_;   ///< this rank's part of each
};

}  // namespace lockstep
