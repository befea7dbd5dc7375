#pragma once

#include "lockstep/export/trained_model.hpp"

namespace lockstep::test {

/// The model of a graph, with values that differ: parameters 0.5, 0.75, ..., statistics likewise.
[[nodiscard]] inline TrainedModel with_values(Graph graph) {
  TrainedModel model{.graph = std::move(graph), .parameters = {}, .statistics = {}};
  float next = 0.25F;
  const auto values = [&next](std::int64_t count) {
    std::vector<float> result(static_cast<std::size_t>(count));
    for (float& value : result) value = next += 0.25F;
    return result;
  };
  for (const Parameter& parameter : model.graph.parameters()) {
    model.parameters.push_back(values(parameter.shape.elements()));
  }
  for (const RunningStatistic& statistic : model.graph.statistics()) {
    model.statistics.push_back(values(statistic.channels));
  }
  return model;
}

}  // namespace lockstep::test
