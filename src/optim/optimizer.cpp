#include "lockstep/optim/optimizer.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "optimizers.hpp"

namespace lockstep {

double Optimizer::squared_norm(std::span<const float> gradients) {
  return lockstep::squared_norm(gradients);
}

std::size_t slot_count(OptimizerKind kind) noexcept {
  return has_moments(kind) ? 2 : 1;
}

std::unique_ptr<Optimizer> make_optimizer(const Config& config, const ArenaLayout& layout,
                                          const SumOverRanks& sum_norms) {
  if (has_moments(config.optimizer)) return make_adam(config, layout, sum_norms);
  if (config.optimizer == OptimizerKind::lars) return make_lars(config, layout, sum_norms);
  if (config.optimizer == OptimizerKind::sgd) return make_sgd(config, layout);
  fail(ExitStatus::internal, "optimizer {} is unknown", static_cast<int>(config.optimizer));
}

}  // namespace lockstep
