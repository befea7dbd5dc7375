#include "lockstep/optim/schedule.hpp"

#include "lockstep/config/config.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

Schedule::Schedule(const Config& config, std::int64_t epoch_samples, std::int64_t global_batch)
    : kind_(config.lr_schedule),
      base_lr_(config.lr),
      warmup_samples_(config.warmup_epochs * static_cast<double>(epoch_samples)),
      total_samples_(static_cast<double>(config.epochs * epoch_samples)),
      min_lr_(config.lr_min),
      warmup_lr_(config.warmup_lr),
      epoch_samples_(config.lr_update == LrUpdate::epoch ? epoch_samples : 0),
      global_batch_(static_cast<double>(global_batch)),
      gamma_(config.lr_gamma),
      power_(config.lr_power) {
  if (config.lr_base_batch > 0) {
    base_lr_ *= global_batch_ / static_cast<double>(config.lr_base_batch);
  }
  for (const double epoch : config.milestones) {
    milestones_.push_back(epoch * static_cast<double>(epoch_samples));
  }
}

double Schedule::lr(std::int64_t samples) const noexcept {
  const bool by_epoch = epoch_samples_ > 0;
  const auto seen =
      static_cast<double>(by_epoch ? samples / epoch_samples_ * epoch_samples_ : samples);
  if (seen < warmup_samples_) {
    const double done = (by_epoch ? seen : seen + global_batch_) / warmup_samples_;
    return warmup_lr_ + (base_lr_ - warmup_lr_) * std::min(1.0, done);
  }
  const double span = total_samples_ - warmup_samples_;
  const double done = span <= 0 ? 1.0 : std::clamp((seen - warmup_samples_) / span, 0.0, 1.0);
  switch (kind_) {
    case LrSchedule::constant:
      return base_lr_;
    case LrSchedule::step: {
      const auto passed = std::count_if(milestones_.begin(), milestones_.end(),
                                        [&](double m) { return seen >= m; });
      return base_lr_ * std::pow(gamma_, static_cast<double>(passed));
    }
    case LrSchedule::cosine:
      return min_lr_ + (base_lr_ - min_lr_) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
    case LrSchedule::polynomial:
      return base_lr_ * std::pow(1.0 - done, power_);
  }
  return base_lr_;
}

}  // namespace lockstep
