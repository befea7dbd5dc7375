#pragma once

#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <span>
#include <vector>

namespace lockstep {

class Engine;

/// The exponential moving average of a whole model: of the parameters, which the optimizer's slot
/// ema_slot holds and update() changes, and of the running statistics, which have the same bits on
/// every rank.
class ModelAverage final {
 public:
  /// All references outlive it; the optimizer has the slot. The averages start at zero.
  ModelAverage(Engine& engine, ParallelState& state, Optimizer& optimizer);

  /// In host memory, in the order of Graph::statistics().
  [[nodiscard]] std::span<float> statistics() noexcept { return statistics_; }
  [[nodiscard]] std::span<const float> statistics() const noexcept { return statistics_; }
  /// Averages the engine's running statistics; `decay`: UpdateOptions::ema_decay of the step.
  void update_statistics(double decay);
  /// Exchanges the engine's model and its average, bit for bit: call before and after an
  /// evaluation of the average, between steps. Collective if the state is sharded.
  void exchange();

 private:
  void exchange_parameters(const ParameterRange& range);

  Engine& engine_;
  ParallelState& state_;
  std::span<float> slot_;  ///< of the parameters that this rank updates
  std::vector<float> statistics_;
};

}  // namespace lockstep
