#include "lockstep/parallel/model_average.hpp"

#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/weight_average.hpp"

#include <algorithm>
#include <cstddef>

namespace lockstep {

namespace {

std::span<float> averaged_slot(Optimizer& optimizer) {
  const auto names = optimizer.slot_names();
  const auto found = std::ranges::find(names, ema_slot);
  return optimizer.slot(static_cast<std::size_t>(found - names.begin()));
}

}  // namespace

ModelAverage::ModelAverage(Engine& engine, ParallelState& state, Optimizer& optimizer)
    : engine_(engine),
      state_(state),
      slot_(averaged_slot(optimizer)),
      statistics_(engine.running_statistics().size()) {}

void ModelAverage::update_statistics(double decay) {
  if (decay == EmaSchedule::unchanged) return;
  const std::span<const float> running = engine_.running_statistics();
  update_average(statistics_, running, decay);
  std::size_t begin = 0;
  for (const RunningStatistic& statistic : engine_.graph().statistics()) {
    const auto size = static_cast<std::size_t>(statistic.channels);
    // Without rounding.
    if (statistic.is_fixed) std::ranges::copy(running.subspan(begin, size), &statistics_[begin]);
    begin += size;
  }
}

void ModelAverage::exchange() {
  state_.await_gathers();
  for (const ParameterRange& range : state_.update_ranges()) exchange_parameters(range);
  std::ranges::swap_ranges(engine_.running_statistics(), statistics_);
  for (std::size_t unit = state_.step_end().units; unit-- > 0;) state_.gather_updated(unit);
  state_.await_gathers();
}

/// Through host memory, a piece at a time: an evaluation takes much longer than these copies.
void ModelAverage::exchange_parameters(const ParameterRange& range) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  std::vector<float> parameters(std::min(piece, range.end - range.begin));
  std::vector<float> average(parameters.size());
  EngineMemory& memory = engine_.memory();
  for (std::size_t begin = range.begin; begin < range.end; begin += piece) {
    const std::size_t size = std::min(piece, range.end - begin);
    const std::span<float> host_parameters = std::span(parameters).first(size);
    const std::span<float> host_average = std::span(average).first(size);
    memory.read(range.parameters.subspan(begin, size), host_parameters);
    memory.read(slot_.subspan(begin, size), host_average);
    memory.write(host_average, range.parameters.subspan(begin, size));
    memory.write(host_parameters, slot_.subspan(begin, size));
  }
}

}  // namespace lockstep
