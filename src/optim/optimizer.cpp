#include "lockstep/optim/optimizer.hpp"

#include "lockstep/core/error.hpp"
#include "optimizers.hpp"

namespace lockstep {

double Optimizer::squared_norm(std::span<const float> gradients) {
  return lockstep::squared_norm(gradients);
}

std::size_t slot_count(OptimizerKind kind) noexcept {
  return kind == OptimizerKind::adam || kind == OptimizerKind::adamw ? 2 : 1;
}

std::unique_ptr<Optimizer> make_optimizer(const Config& config, const ArenaLayout& layout,
                                          const SumOverRanks& sum_norms) {
  switch (config.optimizer) {
    case OptimizerKind::sgd:
      return make_sgd(config, layout);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return make_adam(config, layout);
    case OptimizerKind::lars:
      return make_lars(config, layout, sum_norms);
  }
  fail(ExitStatus::internal, "optimizer {} is unknown", static_cast<int>(config.optimizer));
}

}  // namespace lockstep
