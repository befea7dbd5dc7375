#include "models_detail.hpp"

namespace lockstep::models_detail {

Graph mlp(const ModelOptions& options) {
  const std::int64_t hidden = options.width == 0 ? 512 : options.width;
  Graph graph("mlp", options.image.shape());
  ValueId x = graph.flatten(graph.input());
  for (const char* name : {"fc1", "fc2"}) {
    x = graph.relu(graph.linear(x, {.name = name, .out_features = hidden}));
  }
  x = graph.linear(x, {.name = "fc3", .out_features = options.classes});
  add_loss(graph, x, options);
  return graph;
}

}  // namespace lockstep::models_detail
