#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/sum_over_ranks.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Inputs of one update besides the arenas.
struct UpdateOptions {
  double lr = 0;
  std::int64_t step = 1;        ///< 1 for the first update; Adam's bias correction
  float gradient_scale = 1.0F;  ///< multiplies every gradient first: clipping
  bool as_decided = false;      ///< the last decide() sets the scale and whether to update
  double ema_decay = 1;         ///< of the slot ema_slot in this update; 1: it stays, 0: a copy
};

/// Inputs that decide, once all gradients are reduced, whether to update and how to scale the
/// gradients. All spans and pointers are to the engine's device memory.
struct UpdateInputs {
  std::span<const float> gradients = {};
  const float* samples = nullptr;  ///< of all ranks; no update unless equal to all_samples
  std::int64_t all_samples = 0;
  const float* not_finite = nullptr;  ///< number of ranks whose loss was not finite
  double scale = 1;                   ///< multiplies all gradients: 1 / loss scale
  double clip_norm = 0;               ///< largest gradient norm; 0: no clipping
  bool skips_overflow = false;        ///< no update if the norm or a loss is not finite
};
struct UpdateOutcome {
  bool made = true;
  double gradient_norm = 0;  ///< times UpdateInputs::scale; 0 if not computed
};

/// A range of an arena that one call updates, and its parameters: value i of the arena is
/// parameters[i].
struct ParameterRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::span<float> parameters;
};

/// A fused pass over a range of the arena. Slots have the arena's layout; they start at zero and
/// stay zero in the padding. All spans are in the engine's device memory.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// PyTorch's names: "momentum_buffer", or "exp_avg" (lion), or "exp_avg" and "exp_avg_sq"
  /// (OptimizerTraits::has_moments); then ema_slot if the parameters are averaged.
  [[nodiscard]] virtual std::span<const std::string> slot_names() const noexcept = 0;
  [[nodiscard]] virtual std::span<float> slot(std::size_t index) noexcept = 0;
  /// True if update() needs norms of whole tensors: no range may be updated before all
  /// gradients are final.
  [[nodiscard]] virtual bool needs_all_gradients() const noexcept = 0;
  /// If tensors are sharded and needs_all_gradients(): computes the norms of whole tensors; call
  /// before the update() calls, which get the same options. Collective.
  virtual void measure(std::span<const ParameterRange> /*ranges*/,
                       std::span<const float> /*gradients*/, const UpdateOptions& /*options*/) {}
  /// Updates parameters in [begin, end), cut at tensor boundaries.
  virtual void update(std::size_t begin, std::size_t end, std::span<float> parameters,
                      std::span<const float> gradients, const UpdateOptions& options) = 0;
  /// Decides on the device, so that the host need not wait; false: the host must decide. outcome()
  /// is valid once work queued on the device afterwards is done.
  [[nodiscard]] virtual bool decide(const UpdateInputs& /*inputs*/) { return false; }
  [[nodiscard]] virtual UpdateOutcome outcome() const { return {}; }
  /// Sum of squares of the gradients, in double, in a fixed order.
  [[nodiscard]] virtual double squared_norm(std::span<const float> gradients);
};

/// Number of slots (arenas of state) of the optimizer.
[[nodiscard]] std::size_t slot_count(const Config& config) noexcept;

/// Weight decay skips all parameters but weights unless config.decay_norm_and_bias. If the layout
/// is sharded, `sum_norms` sums over the shards; every rank then updates the same tensors.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config,
                                                        const ArenaLayout& layout,
                                                        const SumOverRanks& sum_norms = {});

/// Sum of squares of host values, in double, in an order that does not depend on the threads.
[[nodiscard]] double squared_norm(std::span<const float> gradients);

}  // namespace lockstep
