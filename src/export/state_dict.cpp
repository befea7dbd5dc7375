#include "state_dict.hpp"

#include "lockstep/core/little_endian.hpp"

#include <span>

namespace lockstep {
namespace {

StateTensor float_tensor(const std::string& name, const Shape& shape,
                         const std::vector<float>& values) {
  return {.name = name,
          .shape = shape,
          .type = ElementType::float32,
          .values = {.view = std::as_bytes(std::span(values))}};
}

}  // namespace

std::vector<StateTensor> state_dict(const TrainedModel& model) {
  std::vector<StateTensor> tensors;
  for (const Node& node : model.graph.nodes()) {
    for (const ParameterId id : node.parameters) {
      const auto index = static_cast<std::size_t>(id);
      const Parameter& parameter = model.graph.parameters()[index];
      tensors.push_back(float_tensor(parameter.name, parameter.shape, model.parameters[index]));
    }
    for (const StatisticId id : node.statistics) {
      const auto index = static_cast<std::size_t>(id);
      const RunningStatistic& statistic = model.graph.statistics()[index];
      tensors.push_back(
          float_tensor(statistic.name, {statistic.channels}, model.statistics[index]));
    }
    if (!node.statistics.empty()) {
      tensors.push_back({.name = layer_name(node.op) + ".num_batches_tracked",
                         .shape = {},
                         .type = ElementType::int64,
                         .values = {.bytes = little_endian(model.step.value_or(0))}});
    }
  }
  return tensors;
}

}  // namespace lockstep
