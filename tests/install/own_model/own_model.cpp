// lockstep, with a model of one's own: own_model train --model own-model --data DIR ...
#include <lockstep/lockstep.hpp>

using namespace lockstep;

namespace {

ValueId residual_block(Graph& graph, ValueId x, const std::string& name, std::int64_t width) {
  graph.begin_block();
  ValueId y = graph.conv2d(x, {.name = name + ".conv1", .out_channels = width, .padding = 1});
  y = graph.relu(graph.batch_norm(y, {.name = name + ".bn1"}));
  y = graph.conv2d(y, {.name = name + ".conv2", .out_channels = width, .padding = 1});
  y = graph.batch_norm(y, {.name = name + ".bn2", .zero_init_weight = true});
  return graph.relu(graph.add(y, x));
}

Graph own_model(const ModelOptions& options) {
  Graph graph("own-model", options.image.shape());
  ValueId x =
      graph.conv2d(graph.input(), {.name = "stem", .out_channels = 16, .stride = 2, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "stem_bn"}));
  for (const char* name : {"block1", "block2"}) x = residual_block(graph, x, name, 16);
  graph.end_blocks();
  x = graph.flatten(graph.global_avg_pool(x));
  x = graph.linear(x, {.name = "fc", .out_features = options.classes});
  add_loss(graph, x, options);
  return graph;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, {{"own-model", own_model}});
}
