#include "lockstep/optim/weight_average.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "segments.hpp"

#include <cassert>

namespace lockstep {

EmaSchedule::EmaSchedule(const Config& config, std::int64_t epoch_samples,
                         std::int64_t global_batch)
    : decay_(config.ema_decay),
      every_(config.ema_every),
      copied_samples_(config.warmup_epochs * static_cast<double>(epoch_samples) +
                      static_cast<double>(config.ema_every * global_batch)) {}

double EmaSchedule::decay(std::int64_t update, std::int64_t samples) const noexcept {
  if (decay_ == 0 || (update - 1) % every_ != 0) return unchanged;
  return update == 1 || static_cast<double>(samples) < copied_samples_ ? copied : decay_;
}

void update_average(std::span<float> average, std::span<const float> values, double decay) {
  assert(average.size() == values.size());
  const AverageRule rule = average_rule(decay);
  float* const a = average.data();
  const float* const w = values.data();
#pragma omp parallel for simd schedule(static) if (parallel \
                                                   : values.size() >= smallest_parallel_size)
  for (std::size_t i = 0; i < values.size(); ++i) rule(w[i], a[i]);
}

}  // namespace lockstep
