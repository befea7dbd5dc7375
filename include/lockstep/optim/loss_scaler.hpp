#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// State of dynamic loss scaling; stored in checkpoints.
struct LossScale {
  double scale = 0x1p16;
  std::int64_t good_steps = 0;     ///< since the scale last changed
  std::int64_t skipped_steps = 0;  ///< in total
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

/// Dynamic loss scaling for fp16, with the constants of torch.amp.GradScaler: a step whose
/// gradients are not finite is skipped and halves the scale; 2000 good ones in a row double it.
/// Without a LossScale the scale is 1 and no step is skipped.
class LossScaler final {
 public:
  static constexpr std::int64_t growth_interval = 2000;
  static constexpr double largest_scale = 0x1p24;

  explicit LossScaler(std::optional<LossScale> start) : state_(start) {}

  [[nodiscard]] bool is_dynamic() const noexcept { return state_.has_value(); }
  [[nodiscard]] double scale() const noexcept { return state_ ? state_->scale : 1.0; }
  [[nodiscard]] const std::optional<LossScale>& state() const noexcept { return state_; }
  /// Call after each step. `finite`: all ranks' summed gradients and losses are finite.
  void update(bool finite) noexcept;
  /// Optimizer updates made by the end of `step` if it is not skipped; skipped steps do not count.
  [[nodiscard]] std::int64_t updates(std::int64_t step) const noexcept {
    return state_ ? step - state_->skipped_steps : step;
  }

 private:
  std::optional<LossScale> state_;
};

}  // namespace lockstep
