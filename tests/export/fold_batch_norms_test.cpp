#include <boost/test/unit_test.hpp>

#include "export/small_model.hpp"
#include "lockstep/export/fold_batch_norms.hpp"

#include <cmath>
#include <variant>

using namespace lockstep;

namespace {

Graph small_graph() {
  return {"small", {2, 5, 4}};
}

void end(Graph& graph, ValueId x) {
  x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 3});
  graph.softmax_cross_entropy(x, {.label_smoothing = 0.1});
}

template <typename Kind>
int count(const Graph& graph) {
  int result = 0;
  for (const Node& node : graph.nodes()) result += std::holds_alternative<Kind>(node.op) ? 1 : 0;
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_norm_becomes_part_of_the_convolution_before_it) {
  for (const bool has_bias : {false, true}) {
    Graph graph = small_graph();
    const ValueId conv = graph.conv2d(
        graph.input(),
        {.name = "conv", .out_channels = 4, .kernel = 3, .groups = 2, .bias = has_bias});
    end(graph, graph.relu(graph.batch_norm(conv, {.name = "bn", .eps = 0.25})));
    const TrainedModel model = test::with_values(std::move(graph));

    const TrainedModel folded = fold_batch_norms(model);

    BOOST_TEST(count<BatchNorm>(folded.graph) == 0);
    BOOST_TEST(folded.statistics.empty());
    BOOST_REQUIRE(folded.graph.parameters().size() == 4u);
    BOOST_TEST(folded.graph.parameters()[1].name == "conv.bias");
    BOOST_REQUIRE(folded.parameters.size() == 4u);
    const std::size_t norm = has_bias ? 2 : 1;
    for (std::size_t k = 0; k < 4; ++k) {
      const double scale = model.parameters[norm][k] / std::sqrt(model.statistics[1][k] + 0.25);
      for (std::size_t i = 9 * k; i < 9 * (k + 1); ++i) {
        BOOST_TEST(folded.parameters[0][i] == static_cast<float>(model.parameters[0][i] * scale));
      }
      const double bias = has_bias ? model.parameters[1][k] : 0;
      BOOST_TEST(folded.parameters[1][k] ==
                 static_cast<float>(scale * (bias - model.statistics[0][k]) +
                                    model.parameters[norm + 1][k]));
    }
    BOOST_TEST((folded.parameters[2] == model.parameters[norm + 2]));
    BOOST_TEST((folded.parameters[3] == model.parameters[norm + 3]));
  }
}

BOOST_AUTO_TEST_CASE(other_norms_and_all_other_ops_stay) {
  Graph graph = small_graph();
  ValueId x = graph.batch_norm(graph.input(), {.name = "of_the_input"});
  x = graph.conv2d(x, {.name = "read_twice", .out_channels = 2, .kernel = 3, .padding = 1});
  x = graph.add(graph.batch_norm(x, {.name = "beside_the_add"}), x);
  x = graph.batch_norm(graph.relu(x), {.name = "of_relu"});
  x = graph.max_pool(x, {.kernel = 2, .stride = 1});
  x = graph.avg_pool(x, {.kernel = 2, .stride = 1, .padding = 1});
  end(graph, graph.global_avg_pool(x));
  TrainedModel model = test::with_values(std::move(graph));
  model.weights = "ema";
  model.resize = 256;
  model.interpolation = "bilinear";

  const TrainedModel folded = fold_batch_norms(model);

  BOOST_TEST(folded.weights == "ema");
  BOOST_TEST((folded.resize == 256));
  BOOST_TEST(folded.interpolation == "bilinear");
  BOOST_TEST(folded.graph.fingerprint() == model.graph.fingerprint());
  BOOST_TEST((folded.parameters == model.parameters));
  BOOST_TEST((folded.statistics == model.statistics));
}
