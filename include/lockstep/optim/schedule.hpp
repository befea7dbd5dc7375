#pragma once

#include "lockstep/config/option_types.hpp"

#include <cstdint>
#include <vector>

namespace lockstep {

/// Learning rate of the update after `samples` samples (over all epochs); a function of samples,
/// not steps, so that the world size does not matter. `epoch_samples`: samples that an epoch uses
/// (N - N mod B); total = config.epochs * epoch_samples. Linear warm-up from
/// config.warmup_lr over config.warmup_epochs; the first update is B samples after its start. With
/// LrUpdate::epoch, all updates of an epoch have the rate of its start, as torch's schedulers that
/// step once an epoch.
class Schedule final {
 public:
  Schedule(const Config& config, std::int64_t epoch_samples, std::int64_t global_batch);
  [[nodiscard]] double lr(std::int64_t samples) const noexcept;

 private:
  LrSchedule kind_;
  double base_lr_;
  double warmup_samples_;
  double total_samples_;
  double min_lr_;
  double warmup_lr_;
  std::int64_t epoch_samples_;  ///< 0: the rate changes each step
  double global_batch_;
  double gamma_;
  double power_;
  std::vector<double> milestones_;  ///< samples
};

}  // namespace lockstep
