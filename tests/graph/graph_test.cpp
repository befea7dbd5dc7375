#include "lockstep/graph/graph.hpp"
#include "core/refusal.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep {

// Lets Boost.Test print shapes.
static std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << to_string(shape);
}

}  // namespace lockstep

using namespace lockstep;

namespace {

Graph small_graph() {
  return {"small", {3, 9, 7}};
}

const Shape& output_of(const Graph& graph, ValueId value) {
  return graph.nodes()[static_cast<std::size_t>(value)].output;
}

void check_mentions(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    BOOST_TEST(message.find(word) != std::string::npos,
               "\"" << message << "\" does not mention \"" << word << '"');
  }
}

Graph one_block(double eps, const std::string& layer) {
  Graph graph = small_graph();
  const ValueId conv = graph.conv2d(0, {.name = layer, .out_channels = 4, .padding = 1});
  const ValueId norm = graph.batch_norm(conv, {.name = "bn", .eps = eps});
  const ValueId flat = graph.flatten(graph.global_avg_pool(graph.relu(norm)));
  graph.softmax_cross_entropy(graph.linear(flat, {.name = "fc", .out_features = 10}), {});
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_output_extent_of_a_window_is_rounded_down) {
  struct Case {
    std::int64_t kernel, stride, padding;
    Shape conv, pool;
  };
  // floor((h + 2p - k) / s) + 1 of 9 x 7.
  for (const Case& each : {Case{3, 1, 1, {4, 9, 7}, {3, 9, 7}},
                           {3, 2, 1, {4, 5, 4}, {3, 5, 4}},
                           {2, 2, 0, {4, 4, 3}, {3, 4, 3}},
                           {7, 2, 3, {4, 5, 4}, {3, 5, 4}},
                           {1, 2, 0, {4, 5, 4}, {3, 5, 4}},
                           {7, 3, 0, {4, 1, 1}, {3, 1, 1}}}) {
    Graph graph = small_graph();
    const ValueId conv = graph.conv2d(0, {.name = "conv",
                                          .out_channels = 4,
                                          .kernel = each.kernel,
                                          .stride = each.stride,
                                          .padding = each.padding});
    const PoolOptions window{.kernel = each.kernel, .stride = each.stride, .padding = each.padding};

    BOOST_TEST(output_of(graph, conv) == each.conv);
    BOOST_TEST(output_of(graph, graph.max_pool(0, window)) == each.pool);
    const ValueId average =
        graph.avg_pool(0, {.kernel = each.kernel, .stride = each.stride, .padding = each.padding});
    BOOST_TEST(output_of(graph, average) == each.pool);
  }
}

BOOST_AUTO_TEST_CASE(the_output_extent_of_partial_windows_is_rounded_up) {
  struct Case {
    std::int64_t kernel, stride, padding;
    Shape output;
  };
  // Of 9 x 7, as torch with ceil_mode.
  for (const Case& each : {Case{2, 2, 0, {3, 5, 4}},
                           {3, 2, 1, {3, 5, 4}},
                           {3, 3, 0, {3, 3, 3}},
                           {2, 3, 1, {3, 4, 3}},
                           {3, 4, 0, {3, 3, 2}},
                           {7, 9, 0, {3, 1, 1}},
                           {8, 2, 0, {3, 2, 1}}}) {
    Graph graph = small_graph();
    const ValueId value = graph.avg_pool(0, {.kernel = each.kernel,
                                             .stride = each.stride,
                                             .padding = each.padding,
                                             .partial_windows = true});

    BOOST_TEST(output_of(graph, value) == each.output);
  }
}

BOOST_AUTO_TEST_CASE(every_op_infers_its_output) {
  Graph graph = small_graph();

  const ValueId conv = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 4});
  const ValueId norm = graph.batch_norm(conv, {.name = "bn"});
  const ValueId relu = graph.relu(norm);
  const ValueId sum = graph.add(relu, norm);
  const ValueId flat_image = graph.flatten(sum);
  const ValueId pooled = graph.global_avg_pool(sum);
  const ValueId flat = graph.flatten(pooled);
  const ValueId logits = graph.linear(flat, {.name = "fc", .out_features = 10});
  const ValueId loss = graph.softmax_cross_entropy(logits, {.label_smoothing = 0.1});

  BOOST_TEST(output_of(graph, graph.input()) == Shape({3, 9, 7}));
  for (const ValueId value : {conv, norm, relu, sum}) {
    BOOST_TEST(output_of(graph, value) == Shape({4, 7, 5}));
  }
  BOOST_TEST(output_of(graph, flat_image) == Shape{140});
  BOOST_TEST(output_of(graph, pooled) == Shape({4, 1, 1}));
  BOOST_TEST(output_of(graph, flat) == Shape{4});
  BOOST_TEST(output_of(graph, logits) == Shape{10});
  BOOST_TEST(output_of(graph, loss) == Shape{});
  BOOST_TEST(graph.nodes().size() == 10u);
}

BOOST_AUTO_TEST_CASE(parameters_have_torchvisions_names_and_layouts) {
  Graph graph = small_graph();
  const ValueId conv = graph.conv2d(0, {.name = "conv1", .out_channels = 4, .bias = true});
  const ValueId norm = graph.batch_norm(conv, {.name = "bn1", .zero_init_weight = true});
  graph.linear(graph.flatten(norm), {.name = "fc", .out_features = 10});

  const std::vector<Parameter> expected{{.name = "conv1.weight",
                                         .shape = {4, 3, 3, 3},
                                         .kind = ParameterKind::weight,
                                         .initialization = Initialization::kaiming_normal_fan_out,
                                         .fan_in = 27},
                                        {.name = "conv1.bias",
                                         .shape = {4},
                                         .kind = ParameterKind::bias,
                                         .initialization = Initialization::uniform_fan_in,
                                         .fan_in = 27},
                                        {.name = "bn1.weight",
                                         .shape = {4},
                                         .kind = ParameterKind::norm,
                                         .initialization = Initialization::zeros},
                                        {.name = "bn1.bias",
                                         .shape = {4},
                                         .kind = ParameterKind::norm,
                                         .initialization = Initialization::zeros},
                                        {.name = "fc.weight",
                                         .shape = {10, 140},
                                         .kind = ParameterKind::weight,
                                         .initialization = Initialization::uniform_fan_in,
                                         .fan_in = 140},
                                        {.name = "fc.bias",
                                         .shape = {10},
                                         .kind = ParameterKind::bias,
                                         .initialization = Initialization::uniform_fan_in,
                                         .fan_in = 140}};
  BOOST_TEST((std::vector(graph.parameters().begin(), graph.parameters().end()) == expected));
  BOOST_TEST(graph.parameter_count() == 4 * 27 + 4 + 8 + 1400 + 10);
  const std::vector<RunningStatistic> statistics{
      {.name = "bn1.running_mean", .channels = 4, .initial_value = 0},
      {.name = "bn1.running_var", .channels = 4, .initial_value = 1}};
  BOOST_TEST((std::vector(graph.statistics().begin(), graph.statistics().end()) == statistics));
  BOOST_TEST((graph.nodes()[1].parameters == std::vector<ParameterId>{0, 1}));
  BOOST_TEST((graph.nodes()[2].parameters == std::vector<ParameterId>{2, 3}));
  BOOST_TEST((graph.nodes()[2].statistics == std::vector<StatisticId>{0, 1}));
}

BOOST_AUTO_TEST_CASE(each_group_of_a_convolution_reads_its_own_channels) {
  Graph graph("groups", {12, 9, 7});
  const ValueId conv =
      graph.conv2d(0, {.name = "conv", .out_channels = 8, .padding = 1, .groups = 4, .bias = true});

  BOOST_TEST(output_of(graph, conv) == Shape({8, 9, 7}));
  BOOST_TEST(graph.parameters()[0].shape == Shape({8, 3, 3, 3}));
  BOOST_TEST(graph.parameters()[0].fan_in == 27);
  BOOST_TEST(graph.parameters()[1].shape == Shape{8});
  BOOST_TEST(graph.parameters()[1].fan_in == 27);
}

BOOST_AUTO_TEST_CASE(groups_that_do_not_divide_the_channels_are_refused) {
  Graph graph("groups", {12, 9, 7});
  const auto conv = [&](std::int64_t out_channels, std::int64_t groups) {
    return test::refusal(
        [&] { graph.conv2d(0, {.name = "conv", .out_channels = out_channels, .groups = groups}); });
  };

  check_mentions(conv(8, 3), {"conv", "3 groups", "12 input", "8 output"});
  check_mentions(conv(10, 5), {"5 groups", "12 input", "10 output"});
  check_mentions(conv(8, 0), {"0 groups"});
  BOOST_TEST(conv(8, 4) == "nothing was refused");
  BOOST_TEST(graph.parameters().size() == 1U);
}

BOOST_AUTO_TEST_CASE(batch_norm_weight_starts_at_one_unless_zero_is_requested) {
  Graph graph = small_graph();
  graph.batch_norm(0, {.name = "bn"});

  BOOST_TEST((graph.parameters()[0].initialization == Initialization::ones));
}

BOOST_AUTO_TEST_CASE(an_input_is_flat_or_an_image) {
  Graph graph("flat", {5});
  const ValueId logits = graph.linear(graph.input(), {.name = "fc", .out_features = 7});
  graph.softmax_cross_entropy(logits, {});

  BOOST_TEST((graph.input_shape() == Shape{5}));
  BOOST_TEST((output_of(graph, logits) == Shape{7}));
  BOOST_TEST(graph.outputs() == 7);
  for (const Shape& shape : {Shape{2, 3}, Shape{2, 3, 4, 5}, Shape{}, Shape{2, 0, 4}}) {
    check_mentions(test::refusal([&] { static_cast<void>(Graph("block", shape)); }),
                   {"block", to_string(shape)});
  }
}

BOOST_AUTO_TEST_CASE(attention_needs_queries_keys_and_values_of_equal_heads) {
  Graph graph("attention", {12, 5, 1});
  const auto attend = [&](ValueId value, std::int64_t heads) {
    return test::refusal([&] { graph.append(Attention{value, {.name = "a", .heads = heads}}); });
  };
  check_mentions(attend(graph.input(), 0), {"a: attention with 0 heads", "12x5x1"});
  check_mentions(attend(graph.input(), 3), {"a: attention with 3 heads", "12x5x1"});
  check_mentions(attend(graph.append(FirstToken{graph.input()}), 2), {"C,H,W"});
  Graph of_images("images", {12, 5, 2});
  check_mentions(test::refusal([&] {
                   of_images.append(Attention{of_images.input(), {.name = "a", .heads = 2}});
                 }),
                 {"12x5x2", "the width is 1"});
  const ValueId attention = graph.append(Attention{graph.input(), {.name = "a", .heads = 2}});
  BOOST_TEST((output_of(graph, attention) == Shape{4, 5, 1}));
}

BOOST_AUTO_TEST_CASE(heads_are_part_of_the_fingerprint) {
  const auto print = [](std::int64_t heads) {
    Graph graph("attention", {12, 5, 1});
    graph.append(Attention{graph.input(), {.name = "a", .heads = heads}});
    return graph.fingerprint();
  };
  BOOST_TEST(print(1) != print(2));
}

BOOST_AUTO_TEST_CASE(two_layers_have_two_names) {
  Graph graph("names", {12, 5, 1});
  graph.append(Attention{graph.input(), {.name = "a", .heads = 2}});
  check_mentions(test::refusal([&] {
                   graph.append(Attention{graph.input(), {.name = "a", .heads = 2}});
                 }),
                 {"two layers are named 'a'"});
}

BOOST_AUTO_TEST_CASE(initial_values_that_do_not_fit_are_refused) {
  const auto linear = [](const InitialValues& weight, const InitialValues& bias) {
    return test::refusal([&] {
      Graph graph("values", {3});
      graph.linear(
          graph.input(),
          {.name = "fc", .out_features = 2, .initial_weight = weight, .initial_bias = bias});
    });
  };
  const InitialValues xavier{Initialization::xavier_uniform};
  check_mentions(linear(xavier, xavier), {"fc.bias", "xavier_uniform"});
  check_mentions(linear({Initialization::normal}, {Initialization::zeros}), {"fc.weight", "0"});
}

BOOST_AUTO_TEST_CASE(wrong_shapes_are_refused_with_layer_and_shapes) {
  Graph graph = small_graph();
  const ValueId conv = graph.conv2d(0, {.name = "conv1", .out_channels = 4});
  const ValueId flat = graph.flatten(conv);

  check_mentions(test::refusal([&] { graph.add(0, conv); }), {"conv1", "3x9x7", "4x7x5"});
  const ValueId pixels = graph.linear(conv, {.name = "of_pixels", .out_features = 2});
  check_mentions(test::refusal([&] { graph.softmax_cross_entropy(pixels, {}); }),
                 {"of_pixels", "2x7x5"});
  check_mentions(test::refusal([&] { graph.conv2d(flat, {.name = "late", .out_channels = 2}); }),
                 {"late", "140"});
  check_mentions(test::refusal([&] { graph.batch_norm(flat, {.name = "bn"}); }), {"bn", "140"});
  check_mentions(test::refusal([&] { graph.max_pool(flat, {}); }), {"max_pool", "140"});
  check_mentions(test::refusal([&] { graph.global_avg_pool(flat); }), {"global_avg_pool", "140"});
  check_mentions(test::refusal([&] { graph.softmax_cross_entropy(conv, {}); }),
                 {"conv1", "4x7x5", "flat"});
}

BOOST_AUTO_TEST_CASE(a_kernel_larger_than_the_padded_input_is_refused) {
  Graph graph = small_graph();
  const auto conv = [&](std::int64_t padding) {
    graph.conv2d(0, {.name = "wide", .out_channels = 1, .kernel = 10, .padding = padding});
  };

  check_mentions(test::refusal([&] { conv(1); }), {"wide", "10", "7", "padding 1"});
  BOOST_TEST(test::refusal([&] { conv(2); }) == "nothing was refused");
  check_mentions(test::refusal([&] { graph.max_pool(0, {.kernel = 8}); }), {"max_pool", "8", "7"});
  check_mentions(test::refusal([&] { graph.avg_pool(0, {.kernel = 8}); }), {"avg_pool", "8", "7"});
}

BOOST_AUTO_TEST_CASE(invalid_numbers_are_refused) {
  Graph graph = small_graph();

  check_mentions(test::refusal([&] { graph.conv2d(0, {.name = "c", .out_channels = 0}); }),
                 {"c: 0"});
  check_mentions(
      test::refusal([&] { graph.conv2d(0, {.name = "c", .out_channels = 1, .stride = 0}); }),
      {"stride 0"});
  check_mentions(
      test::refusal([&] { graph.conv2d(0, {.name = "c", .out_channels = 1, .kernel = 0}); }),
      {"kernel 0"});
  check_mentions(test::refusal([&] { graph.max_pool(0, {.kernel = 2, .padding = 2}); }),
                 {"padding 2"});
  check_mentions(test::refusal([&] { graph.avg_pool(0, {.kernel = 2, .padding = 2}); }),
                 {"avg_pool", "padding 2"});
  check_mentions(test::refusal([&] { graph.linear(graph.flatten(0), {.name = "fc"}); }), {"fc: 0"});
  check_mentions(test::refusal([&] { graph.relu(99); }), {"99"});
  check_mentions(test::refusal([&] { graph.relu(-1); }), {"-1"});
  check_mentions(test::refusal([] { Graph("g", {3, 0, 4}); }), {"3x0x4"});
  check_mentions(test::refusal([] { Graph("g", {}); }), {"scalar"});
  check_mentions(test::refusal([] { Graph("g", {0}); }), {"input of 0"});
}

BOOST_AUTO_TEST_CASE(label_smoothing_outside_zero_to_one_is_refused) {
  for (const double smoothing : {-0.1, 1.0, 2.0}) {
    Graph graph("g", {10, 1, 1});
    const ValueId flat = graph.flatten(0);
    check_mentions(
        test::refusal([&] { graph.softmax_cross_entropy(flat, {.label_smoothing = smoothing}); }),
        {"label smoothing"});
  }
}

BOOST_AUTO_TEST_CASE(a_target_threshold_outside_zero_to_one_is_refused) {
  for (const double threshold : {-0.1, 1.0}) {
    Graph graph("g", {10, 1, 1});
    const ValueId flat = graph.flatten(0);
    check_mentions(
        test::refusal([&] { graph.binary_cross_entropy(flat, {.target_threshold = threshold}); }),
        {"target threshold"});
  }
}

BOOST_AUTO_TEST_CASE(two_layers_of_one_name_are_refused) {
  Graph graph = small_graph();
  const ValueId conv = graph.conv2d(0, {.name = "twin", .out_channels = 4});

  check_mentions(test::refusal([&] { graph.conv2d(conv, {.name = "twin", .out_channels = 4}); }),
                 {"twin.weight"});
  check_mentions(test::refusal([&] { graph.batch_norm(conv, {.name = "twin"}); }), {"twin.weight"});
}

BOOST_AUTO_TEST_CASE(ops_after_the_loss_are_refused) {
  Graph graph = one_block(1e-5, "conv");
  const std::size_t parameters = graph.parameters().size();

  check_mentions(test::refusal([&] { graph.softmax_cross_entropy(7, {}); }), {"after the loss"});
  check_mentions(test::refusal([&] { graph.conv2d(0, {.name = "late", .out_channels = 4}); }),
                 {"after the loss"});
  BOOST_TEST(graph.parameters().size() == parameters);
}

BOOST_AUTO_TEST_CASE(stochastic_depth_is_checked_and_listed_by_block) {
  const auto norms = [](const std::vector<StochasticDepth>& drops) {
    Graph graph = small_graph();
    ValueId x = 0;
    for (std::size_t i = 0; i < drops.size(); ++i) {
      x = graph.batch_norm(x, {.name = "bn" + std::to_string(i), .drop = drops[i]});
    }
    return graph;
  };

  BOOST_TEST(drop_probabilities(norms({{}, {}})).empty());
  BOOST_TEST(
      (drop_probabilities(norms({{}, {.probability = 0.5, .block = 2}, {.probability = 0.25}})) ==
       std::vector<float>{0.25F, 0, 0.5F}));
  BOOST_TEST(norms({{.probability = 0.5}}).fingerprint() == norms({{}}).fingerprint());
  for (const StochasticDepth wrong : {StochasticDepth{.probability = 1},
                                      {.probability = -0.1},
                                      {.probability = 0.5, .block = 64},
                                      {.probability = 0.5, .block = -1}}) {
    check_mentions(test::refusal([&] { norms({wrong}); }), {"bn0", "probability"});
  }
}

BOOST_AUTO_TEST_CASE(ops_belong_to_the_block_and_stage_that_are_marked) {
  const auto network = [](bool marks) {
    Graph graph = small_graph();
    const auto conv = [&graph](const char* name) {
      graph.conv2d(0, {.name = name, .out_channels = 4, .padding = 1});
    };
    const auto block = [&](int number) {
      if (marks) BOOST_TEST(graph.begin_block() == number);
    };
    conv("outside");
    block(0);
    conv("block");
    conv("same block");
    if (marks) graph.begin_stage();
    conv("stage");
    block(1);
    conv("block of the stage");
    block(2);
    conv("next block of the stage");
    if (marks) graph.begin_stage();
    block(3);
    conv("next stage");
    if (marks) graph.end_blocks();
    conv("after");
    return graph;
  };
  const Graph graph = network(true);

  std::vector<int> stages;
  std::vector<int> blocks;
  for (const Node& node : graph.nodes()) {
    stages.push_back(node.stage);
    blocks.push_back(node.block);
  }

  // The input and eight convolutions.
  BOOST_TEST(stages == (std::vector<int>{-1, -1, -1, -1, 0, 0, 0, 1, -1}),
             boost::test_tools::per_element());
  BOOST_TEST(blocks == (std::vector<int>{-1, -1, 0, 0, -1, 1, 2, 3, -1}),
             boost::test_tools::per_element());
  BOOST_TEST(graph.fingerprint() == network(false).fingerprint());
  BOOST_TEST(layer_difference(graph, network(false)) == "");
}

BOOST_AUTO_TEST_CASE(fingerprints_distinguish_networks) {
  const std::uint32_t print = one_block(1e-5, "conv").fingerprint();

  BOOST_TEST(one_block(1e-5, "conv").fingerprint() == print);
  BOOST_TEST(one_block(1e-5, "other").fingerprint() != print);
  BOOST_TEST(one_block(1e-3, "conv").fingerprint() != print);
}

BOOST_AUTO_TEST_CASE(
    networks_for_two_sizes_of_images_have_the_same_layers_if_their_parameters_fit) {
  const auto network = [](std::int64_t size, bool pools, std::int64_t stride = 1) {
    Graph graph("network", {3, size, size});
    const ValueId conv =
        graph.conv2d(0, {.name = "conv", .out_channels = 4, .stride = stride, .padding = 1});
    const ValueId flat = graph.flatten(pools ? graph.global_avg_pool(conv) : conv);
    graph.softmax_cross_entropy(graph.linear(flat, {.name = "fc", .out_features = 10}), {});
    return graph;
  };

  BOOST_TEST(layer_difference(network(8, true), network(11, true)) == "");
  BOOST_TEST(layer_difference(network(8, false), network(8, false)) == "");
  BOOST_TEST(layer_difference(network(8, false), network(4, false)) ==
             "fc.weight is 10x256 or 10x64");
  BOOST_TEST(layer_difference(network(8, true), network(8, true, 2)) == "it has other layers");
  BOOST_TEST(layer_difference(network(8, true), one_block(1e-5, "conv")) == "it has other layers");
}

BOOST_AUTO_TEST_CASE(fingerprints_do_not_depend_on_the_loss) {
  const auto print = [](bool binary) {
    Graph graph("g", {10, 1, 1});
    const ValueId flat = graph.flatten(0);
    binary ? graph.binary_cross_entropy(flat, {}) : graph.softmax_cross_entropy(flat, {});
    check_mentions(test::refusal([&] { graph.relu(flat); }),
                   {"after the loss", binary ? "binary_cross_entropy" : "softmax_cross_entropy"});
    return graph.fingerprint();
  };

  BOOST_TEST(print(true) == print(false));
}

BOOST_AUTO_TEST_CASE(fingerprints_distinguish_strides_and_connections) {
  const auto print = [](std::int64_t stride, std::int64_t padding) {
    Graph graph("g", {3, 3, 3});
    graph.max_pool(0, {.kernel = 3, .stride = stride, .padding = padding});
    return graph.fingerprint();
  };
  const auto pool = [](bool averages) {
    Graph graph("g", {3, 3, 3});
    averages ? graph.avg_pool(0, {}) : graph.max_pool(0, {});
    return graph.fingerprint();
  };
  const auto add = [](bool twice) {
    Graph graph("g", {3, 3, 3});
    graph.add(0, twice ? 0 : graph.relu(0));
    if (twice) graph.relu(0);
    return graph.fingerprint();
  };

  const auto average = [](bool partial) {
    Graph graph("g", {3, 4, 4});
    graph.avg_pool(0, {.partial_windows = partial});
    return graph.fingerprint();
  };

  BOOST_TEST(average(true) != average(false));
  BOOST_TEST(print(1, 0) != print(2, 0));
  BOOST_TEST(pool(true) != pool(false));
  BOOST_TEST(add(true) != add(false));
}
