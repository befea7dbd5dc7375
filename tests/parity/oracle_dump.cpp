// oracle_dump NAME: prints what the conformance tests expect of a network of activations and layer
// norms, or of a transformer, in double precision, as JSON for activation_parity.py.
#include "conformance/fixtures.hpp"
#include "conformance/oracle.hpp"
#include "lockstep/models/models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;

namespace {

Graph transformer() {
  return make_model("mini-vit",
                    {.image = {.channels = 3, .height = 8, .width = 8}, .classes = 4, .width = 16});
}

Graph activations() {
  Graph graph("activations", {3, 4, 5});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "conv", .out_channels = 6, .kernel = 1, .bias = true});
  x = graph.append(LayerNorm{x, {.name = "pixels", .eps = 1e-3}});
  x = graph.append(LayerNorm{graph.flatten(graph.append(Gelu{x})), {.name = "features"}});
  x = graph.append(Gelu{graph.linear(x, {.name = "fc1", .out_features = 7})});
  x = graph.linear(x, {.name = "fc2", .out_features = 4});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

template <typename Values>
std::string list_of(const Values& values) {
  return fmt::format("[{:.17g}]", fmt::join(values, ","));
}
std::string by_name(const Graph& graph, const std::vector<oracle::Values>& values) {
  std::vector<std::string> fields;
  for (std::size_t id = 0; id < values.size(); ++id) {
    fields.push_back(fmt::format("\"{}\":{}", graph.parameters()[id].name, list_of(values[id])));
  }
  return fmt::format("{{{}}}", fmt::join(fields, ","));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name != "transformer" && name != "activations") {
    std::fputs("usage: oracle_dump transformer|activations\n", stderr);
    return 64;
  }
  const Graph graph = name == "transformer" ? transformer() : activations();
  const oracle::State state = oracle::random_state(graph, 3);
  const oracle::Problem problem = oracle::random_problem(graph, 5, 4);
  const oracle::Result result = oracle::run(graph, state, problem, oracle::Mode::training);
  fmt::print(
      "{{\"parameters\":{},\"images\":{},\"labels\":[{}],\"loss_scale\":{},\"logits\":{},"
      "\"loss\":{:.17g},\"gradients\":{}}}\n",
      by_name(graph, state.parameters), list_of(problem.images), fmt::join(problem.labels, ","),
      problem.loss_scale, list_of(result.logits), result.loss, by_name(graph, result.gradients));
}
