#include "lockstep/optim/optimizer.hpp"

#include "lockstep/config/config.hpp"
#include "optimizers.hpp"

#include <utility>

namespace lockstep {

double Optimizer::squared_norm(std::span<const float> gradients) {
  return lockstep::squared_norm(gradients);
}

std::size_t slot_count(const Config& config) noexcept {
  return (traits_of(config.optimizer).has_moments ? 2U : 1U) + (config.ema_decay > 0 ? 1U : 0U);
}

namespace {

std::unique_ptr<Optimizer> make_update_rule(const Config& config, const ArenaLayout& layout,
                                            const SumOverRanks& sum_norms) {
  if (traits_of(config.optimizer).has_moments) return make_adam(config, layout, sum_norms);
  if (config.optimizer == OptimizerKind::lars) return make_lars(config, layout, sum_norms);
  return make_momentum(config, layout);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const Config& config, const ArenaLayout& layout,
                                          const SumOverRanks& sum_norms) {
  auto optimizer = make_update_rule(config, layout, sum_norms);
  return config.ema_decay > 0 ? make_averaging(std::move(optimizer), layout) : std::move(optimizer);
}

}  // namespace lockstep
