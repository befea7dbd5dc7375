#include "lockstep/graph/summary.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

using namespace lockstep;

namespace {

Graph tiny() {
  Graph graph("tiny", {3, 8, 8});
  const ValueId conv = graph.conv2d(
      0, {.name = "conv1", .out_channels = 4, .stride = 2, .padding = 1, .bias = true});
  const ValueId relu = graph.relu(graph.batch_norm(conv, {.name = "bn1"}));
  const ValueId logits = graph.linear(graph.flatten(relu), {.name = "fc", .out_features = 10});
  graph.softmax_cross_entropy(logits, {});
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rows_count_parameters_multiply_adds_and_bytes) {
  const ModelSummary summary = summarize_model(tiny());

  BOOST_TEST(summary.rows.size() == 7u);
  const ModelRow& conv = summary.rows[1];
  BOOST_TEST(conv.name == "conv1");
  BOOST_TEST(conv.op == "conv2d");
  BOOST_TEST((conv.output == Shape{4, 4, 4}));
  BOOST_TEST(conv.parameters == 4 * 27 + 4);
  BOOST_TEST(conv.multiply_adds == 4 * 27 * 16);
  BOOST_TEST(conv.activation_bytes == 4 * 4 * 4 * 4);
  BOOST_TEST(summary.rows[2].parameters == 8);
  BOOST_TEST(summary.rows[2].multiply_adds == 0);
  BOOST_TEST(summary.rows[3].name == "relu");
  BOOST_TEST(summary.rows[5].multiply_adds == 640);
}

BOOST_AUTO_TEST_CASE(groups_multiply_only_their_own_channels) {
  Graph graph("groups", {6, 8, 8});
  graph.conv2d(0, {.name = "conv", .out_channels = 9, .padding = 1, .groups = 3});
  const ModelRow row = summarize_model(graph).rows[1];

  BOOST_TEST(row.parameters == 9 * 2 * 9);
  BOOST_TEST(row.multiply_adds == 9 * 2 * 9 * 64);
}

BOOST_AUTO_TEST_CASE(totals_are_sums_of_the_rows) {
  const Graph graph = tiny();
  const ModelSummary summary = summarize_model(graph);

  BOOST_TEST(summary.parameters == graph.parameter_count());
  BOOST_TEST(summary.multiply_adds == 4 * 27 * 16 + 640);
  // Image, conv, norm, relu and flatten, logits, loss: fp32.
  BOOST_TEST(summary.activation_bytes == 4 * (192 + 4 * 64 + 10 + 1));
}

BOOST_AUTO_TEST_CASE(the_table_is_aligned_and_ends_with_totals) {
  std::istringstream table(format_summary(summarize_model(tiny())));
  std::string line;
  std::string last;
  std::size_t width = 0;
  std::size_t lines = 0;
  for (; std::getline(table, line); ++lines) {
    if (width == 0) width = line.size();
    BOOST_TEST(line.size() == width);
    last = line;
  }

  BOOST_TEST(lines == 9u);
  BOOST_TEST(last.starts_with("total"));
  BOOST_TEST(last.find(" 770 ") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(json_has_the_same_values_as_the_rows) {
  const ModelSummary summary = summarize_model(tiny());
  const nlohmann::json json = summary_json(summary);

  BOOST_TEST(json.at("model") == "tiny");
  BOOST_TEST(json.at("parameters") == summary.parameters);
  BOOST_TEST(json.at("multiply_adds") == summary.multiply_adds);
  BOOST_TEST(json.at("activation_bytes") == summary.activation_bytes);
  BOOST_TEST(json.at("layers").size() == 7u);
  const nlohmann::json conv{{"name", "conv1"},       {"op", "conv2d"},
                            {"output", {4, 4, 4}},   {"parameters", 112},
                            {"multiply_adds", 1728}, {"activation_bytes", 256}};
  BOOST_TEST(json.at("layers").at(1) == conv);
}
