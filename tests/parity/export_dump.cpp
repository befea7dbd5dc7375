// export_dump STATE ONNX FOLDED_ONNX: writes a network with every op of graph/ops.hpp and windows
// that models do not have, for export_ops.py.
#include "lockstep/core/error.hpp"
#include "lockstep/export/fold_batch_norms.hpp"
#include "lockstep/export/formats.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <cmath>
#include <cstdio>
#include <random>

using namespace lockstep;

namespace {

Graph every_op() {
  Graph graph("every-op", {4, 21, 17});
  ValueId x = graph.conv2d(graph.input(), {.name = "grouped",
                                           .out_channels = 8,
                                           .kernel = 3,
                                           .stride = 2,
                                           .padding = 2,
                                           .groups = 2,
                                           .bias = true});
  x = graph.relu(graph.batch_norm(x, {.name = "bn1", .eps = 0.25}));
  x = graph.avg_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  const ValueId twice = graph.conv2d(x, {.name = "read_twice", .out_channels = 8, .kernel = 1});
  x = graph.add(graph.batch_norm(twice, {.name = "bn2"}), twice);
  x = graph.append(Gelu{x});
  x = graph.append(LayerNorm{x, {.name = "pixels", .eps = 0.25}});
  x = graph.max_pool(x, {.kernel = 3, .stride = 1, .padding = 1});
  x = graph.linear(x, {.name = "of_pixels", .out_features = 8});
  ValueId tokens =
      graph.append(Tokens{x, {.class_token = "class_token", .positions = "positions"}});
  tokens = graph.linear(tokens, {.name = "in_proj", .out_features = 24, .separator = '_'});
  tokens = graph.append(Attention{tokens, {.name = "attention", .heads = 2}});
  x = graph.avg_pool(x, {.kernel = 2, .stride = 2, .partial_windows = true});
  x = graph.batch_norm(graph.global_avg_pool(x), {.name = "bn3"});
  x = graph.add(graph.flatten(x), graph.append(FirstToken{tokens}));
  x = graph.append(LayerNorm{x, {.name = "features"}});
  const ValueId logits = graph.linear(x, {.name = "fc", .out_features = 5});
  graph.softmax_cross_entropy(logits, {});
  return graph;
}

/// Variances are positive.
std::vector<float> random_values(std::int64_t count, bool positive, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = positive ? 0.1F + std::abs(normal(random)) : normal(random);
  return values;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: export_dump STATE ONNX FOLDED_ONNX\n", stderr);
    return static_cast<int>(ExitStatus::usage);
  }
  std::mt19937 random(1);
  TrainedModel model{.graph = every_op(), .parameters = {}, .statistics = {}};
  for (const Parameter& parameter : model.graph.parameters()) {
    model.parameters.push_back(random_values(parameter.shape.elements(), false, random));
  }
  for (const RunningStatistic& statistic : model.graph.statistics()) {
    model.statistics.push_back(
        random_values(statistic.channels, statistic.initial_value > 0, random));
  }
  write_parts_atomically(argv[1], torch_file(model));
  write_parts_atomically(argv[2], onnx_file(model, OnnxInput::normalized));
  const TrainedModel folded = fold_batch_norms(model);
  write_parts_atomically(argv[3], onnx_file(folded, OnnxInput::normalized));
}
