#include "conformance/oracle.hpp"

#include "conformance/fixtures.hpp"
#include "lockstep/core/loss_options.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace lockstep;

namespace {

/// Every op at least once, a value with two consumers, and strides and padding that leave a
/// remainder.
Graph graph_of_all_ops(std::string_view loss) {
  Graph graph("all-ops", {2, 7, 6});
  ValueId x = graph.conv2d(
      graph.input(), {.name = "conv1", .out_channels = 3, .kernel = 3, .padding = 1, .bias = true});
  x = graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  const ValueId shortcut = x;
  x = graph.relu(graph.batch_norm(x, {.name = "bn1"}));
  x = graph.conv2d(x, {.name = "conv2", .out_channels = 3, .kernel = 3, .padding = 1});
  x = graph.relu(graph.add(x, shortcut));
  x = graph.append(LayerNorm{graph.append(Gelu{x}), {.name = "ln1"}});
  const ValueId pooled = graph.flatten(graph.global_avg_pool(x));
  x = graph.linear(pooled, {.name = "fc1", .out_features = 4});
  const ValueId wide = graph.linear(graph.flatten(shortcut), {.name = "fc2", .out_features = 4});
  x = graph.append(LayerNorm{graph.add(x, wide), {.name = "ln2", .eps = 0.1}});
  graph.append(make_loss(loss, x, {.label_smoothing = 0.1}));
  return graph;
}

Graph transformer() {
  return make_model("mini-vit",
                    {.image = {.channels = 2, .height = 8, .width = 12}, .classes = 4, .width = 8});
}

double loss_of(const Graph& graph, const oracle::State& state, const oracle::Problem& problem) {
  return problem.loss_scale * oracle::run(graph, state, problem, oracle::Mode::training).loss;
}

}  // namespace

namespace {

void check_slopes(const Graph& graph) {
  const auto problem = oracle::mixed(oracle::random_problem(graph, 3, 5), 6);
  oracle::State state = oracle::random_state(graph, 7);
  const auto result = oracle::run(graph, state, problem, oracle::Mode::training);

  constexpr double step = 1e-6;
  for (std::size_t id = 0; id < state.parameters.size(); ++id) {
    for (std::size_t i = 0; i < state.parameters[id].size(); ++i) {
      double& value = state.parameters[id][i];
      const double kept = value;
      value = kept + step;
      const double above = loss_of(graph, state, problem);
      value = kept - step;
      const double below = loss_of(graph, state, problem);
      value = kept;
      const double slope = (above - below) / (2 * step);
      // Central differences: the error is step squared by truncation and 1e-16 / step by
      // cancellation.
      BOOST_TEST(std::abs(result.gradients[id][i] - slope) < 1e-7 + 1e-6 * std::abs(slope),
                 graph.parameters()[id].name << '[' << i << "]: " << result.gradients[id][i]
                                             << " against " << slope);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(gradients_are_the_slopes_of_the_loss) {
  for (const LossOption& loss : loss_options) {
    BOOST_TEST_CONTEXT(loss.name) {
      check_slopes(graph_of_all_ops(loss.name));
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_a_transformer_are_the_slopes_of_its_loss) {
  check_slopes(transformer());
}

BOOST_AUTO_TEST_CASE(binary_cross_entropy_is_the_mean_over_classes) {
  const auto loss = [](double threshold, oracle::Mode mode) {
    Graph graph("loss", {3, 1, 1});
    graph.binary_cross_entropy(graph.flatten(graph.input()),
                               {.label_smoothing = 0.3, .target_threshold = threshold});
    const oracle::Problem problem{.batch_size = 1, .images = {0, 1, 2}, .labels = {2}};
    return oracle::run(graph, {}, problem, mode).loss;
  };
  const auto term = [](double logit, double target) {
    const double probability = 1 / (1 + std::exp(-logit));
    return -target * std::log(probability) - (1 - target) * std::log(1 - probability);
  };

  BOOST_TEST(std::abs(loss(0, oracle::Mode::training) -
                      (term(0, 0.1) + term(1, 0.1) + term(2, 0.8)) / 3) < 1e-12);
  BOOST_TEST(std::abs(loss(0.5, oracle::Mode::training) -
                      (term(0, 0) + term(1, 0) + term(2, 1)) / 3) < 1e-12);
  const double log_sum = std::log(1 + std::exp(1.0) + std::exp(2.0));
  BOOST_TEST(std::abs(loss(0, oracle::Mode::inference) - (log_sum - 2)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(mean_squared_error_is_the_mean_over_classes) {
  const auto loss = [](oracle::Mode mode) {
    Graph graph("loss", {3, 1, 1});
    graph.mean_squared_error(graph.flatten(graph.input()), {.label_smoothing = 0.3});
    const oracle::Problem problem{.batch_size = 1, .images = {0, 1, 2}, .labels = {2}};
    return oracle::run(graph, {}, problem, mode).loss;
  };

  BOOST_TEST(std::abs(loss(oracle::Mode::training) - (0.01 + 0.81 + 1.44) / 3) < 1e-12);
  const double log_sum = std::log(1 + std::exp(1.0) + std::exp(2.0));
  BOOST_TEST(std::abs(loss(oracle::Mode::inference) - (log_sum - 2)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(a_mixed_target_is_the_mean_of_two_targets) {
  Graph graph("loss", {3, 1, 1});
  graph.softmax_cross_entropy(graph.flatten(graph.input()), {.label_smoothing = 0.3});
  const auto loss_of_labels = [&](std::int32_t first, std::int32_t second) {
    const oracle::Problem problem{
        .batch_size = 2, .images = {0, 1, 2, 5, 3, 1}, .labels = {first, second}};
    return oracle::run(graph, {}, problem, oracle::Mode::inference).loss;
  };
  oracle::Problem problem{.batch_size = 2, .images = {0, 1, 2, 5, 3, 1}, .labels = {2, 1}};
  problem.mixes = {{.partner = 1, .weight = 0.25F}, {.partner = 0, .weight = 0.25F}};

  const auto result = oracle::run(graph, {}, problem, oracle::Mode::inference);

  BOOST_TEST(std::abs(result.loss - 0.25 * loss_of_labels(2, 1) - 0.75 * loss_of_labels(1, 2)) <
             1e-12);
  BOOST_TEST(result.top1 == 0);  // the labels of weight 0.75 are 1 and 2
  BOOST_TEST(result.top5 == 2);
}

BOOST_AUTO_TEST_CASE(batch_statistics_are_those_of_the_values) {
  Graph graph("norm", {1, 1, 2});
  const ValueId x = graph.batch_norm(graph.input(), {.name = "bn"});
  graph.softmax_cross_entropy(graph.flatten(x), {});
  const oracle::State state{.parameters = {{1}, {0}}, .statistics = {{0}, {1}}};
  const oracle::Problem problem{.batch_size = 2, .images = {1, 2, 3, 6}, .labels = {0, 1}};

  const auto result = oracle::run(graph, state, problem, oracle::Mode::training);

  // Mean 3; squared deviations 4 + 1 + 0 + 9, over 3.
  BOOST_REQUIRE(result.batch_statistics.size() == 2u);
  BOOST_TEST(result.batch_statistics[0] == 3.0);
  BOOST_TEST(std::abs(result.batch_statistics[1] - 14.0 / 3.0) < 1e-12);
  BOOST_TEST(std::abs(result.logits[0] - -2.0 / std::sqrt(3.5 + 1e-5)) < 1e-12);
}

BOOST_AUTO_TEST_CASE(smoothed_loss_is_the_mixture_of_label_and_even_targets) {
  Graph graph("loss", {3, 1, 1});
  graph.softmax_cross_entropy(graph.flatten(graph.input()), {.label_smoothing = 0.3});
  const oracle::Problem problem{.batch_size = 1, .images = {0, 1, 2}, .labels = {2}};

  const auto result = oracle::run(graph, {}, problem, oracle::Mode::inference);

  const double log_sum = std::log(1 + std::exp(1.0) + std::exp(2.0));
  BOOST_TEST(std::abs(result.loss - (0.7 * (log_sum - 2) + 0.3 * (log_sum - 1))) < 1e-12);
  BOOST_TEST(result.top1 == 1);
}
