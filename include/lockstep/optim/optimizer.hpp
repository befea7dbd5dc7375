#pragma once

#include "lockstep/config/config.hpp"
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

/// What one update needs to know beside the arenas.
struct UpdateOptions {
  double lr = 0;
  std::int64_t step = 1;        ///< 1 for the first update; Adam's bias correction
  float gradient_scale = 1.0F;  ///< multiplies every gradient first: clipping
  bool as_decided = false;      ///< whether it is made, and the scale: as the last decide() has it
};

/// What says, once all gradients are there, whether an update is made and what gradients are
/// multiplied by. All spans are of the engine's device.
struct UpdateQuestion {
  std::span<const float> gradients = {};
  const float* samples = nullptr;  ///< that the ranks had: it is made where they are all_samples
  std::int64_t all_samples = 0;
  const float* not_finite = nullptr;  ///< ranks whose loss was not finite
  double scale = 1;                   ///< of all gradients: 1 / loss scale
  double clip_norm = 0;               ///< that their norm is brought down to; 0: it stays
  bool skips_overflow = false;        ///< no update where their norm or a loss is not finite
};
struct UpdateAnswer {
  bool made = true;
  double gradient_norm = 0;  ///< times UpdateQuestion::scale; 0 where it was not asked for
};

/// A range of an arena that is updated in one call, and where its parameters are: value i of the
/// range is parameters[i].
struct UpdatePart {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::span<float> parameters;
};

/// A fused pass over a range of the arena. Slots are arena-shaped, zero at first and in the
/// padding. All spans are of the engine's device.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// "momentum_buffer" (sgd, lars), "exp_avg" and "exp_avg_sq" (adam, adamw).
  [[nodiscard]] virtual std::span<const std::string> slot_names() const noexcept = 0;
  [[nodiscard]] virtual std::span<float> slot(std::size_t index) noexcept = 0;
  /// True where update() needs whole tensors' norms, so that ranges may not be updated before all
  /// gradients are final (lars).
  [[nodiscard]] virtual bool needs_all_gradients() const noexcept = 0;
  /// Where ranks share tensors out, before the update of all parts of one that
  /// needs_all_gradients(): takes the norms of whole tensors. Collective.
  virtual void measure(std::span<const UpdatePart> /*parts*/,
                       std::span<const float> /*gradients*/) {}
  /// Updates parameters in [begin, end), cut at tensor boundaries.
  virtual void update(std::size_t begin, std::size_t end, std::span<float> parameters,
                      std::span<const float> gradients, const UpdateOptions& options) = 0;
  /// Lets a device decide, so that nobody waits for it; false where the host must. The answer is
  /// there when what is asked of the device afterwards has been done.
  [[nodiscard]] virtual bool decide(const UpdateQuestion& /*question*/) { return false; }
  [[nodiscard]] virtual UpdateAnswer answer() const { return {}; }
  /// Sum of squares of the gradients, in double and in a fixed order.
  [[nodiscard]] virtual double squared_norm(std::span<const float> gradients);
};

/// How many arenas of state such an optimizer keeps.
[[nodiscard]] std::size_t slot_count(OptimizerKind kind) noexcept;

/// Weight decay leaves out norm and bias parameters unless config.decay_norm_and_bias. Where ranks
/// share tensors out, `sum_norms` sums over their parts; every rank then updates the same tensors.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config,
                                                        const ArenaLayout& layout,
                                                        const SumOverRanks& sum_norms = {});

/// Sum of squares of values in host memory in double, in a fixed order whatever the threads.
[[nodiscard]] double squared_norm(std::span<const float> gradients);

}  // namespace lockstep
