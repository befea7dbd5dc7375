#include "models_detail.hpp"

#include <utility>

namespace lockstep::models_detail {

Graph simple_cnn(const ModelOptions& options) {
  const std::int64_t base = options.width == 0 ? 32 : options.width;
  Graph graph("simple-cnn", options.image.shape());
  ValueId x = graph.input();
  for (const auto& [name, channels] : {std::pair{"conv1", base}, {"conv2", 2 * base}}) {
    x = graph.conv2d(
        x, {.name = name, .out_channels = channels, .kernel = 3, .padding = 1, .bias = true});
    x = graph.max_pool(graph.relu(x), {.kernel = 2, .stride = 2});
  }
  x = graph.linear(graph.flatten(x), {.name = "fc1", .out_features = 16 * base});
  x = graph.linear(graph.relu(x), {.name = "fc2", .out_features = options.classes});
  add_loss(graph, x, options);
  return graph;
}

}  // namespace lockstep::models_detail
