#pragma once

#include "lockstep/config/option_types.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// Name of the optimizer slot that holds the exponential moving average (EMA) of the parameters.
inline constexpr std::string_view ema_slot = "ema";

/// Decay of the EMA of the weights in each update; a function of the update and its samples. As
/// torchvision's references/classification, which copies the weights in the first update and
/// during warm-up: https://github.com/pytorch/vision/blob/v0.14.1/references/classification.
class EmaSchedule final {
 public:
  static constexpr double unchanged = 1;  ///< the average stays as it is
  static constexpr double copied = 0;     ///< the average becomes the weights

  /// `epoch_samples`: as of Schedule.
  EmaSchedule(const Config& config, std::int64_t epoch_samples, std::int64_t global_batch);
  /// `update`: number of the update, 1 for the first, without skipped steps. `samples`: seen before
  /// it, over all epochs.
  [[nodiscard]] double decay(std::int64_t update, std::int64_t samples) const noexcept;

 private:
  double decay_;
  std::int64_t every_;
  double copied_samples_;  ///< warm-up, and the interval after it
};

/// average = decay * average + (1 - decay) * values, in fp32, as
/// torch.optim.swa_utils.AveragedModel with this avg_fn; a decay of 0 copies. Host memory; the bits
/// do not depend on the threads.
void update_average(std::span<float> average, std::span<const float> values, double decay);

}  // namespace lockstep
