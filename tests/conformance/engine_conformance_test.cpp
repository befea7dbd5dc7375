#include "conformance/harness.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::conformance;

namespace {

void check_all(const Graph& graph, std::int64_t batch_size) {
  for (const Candidate& candidate : candidates()) {
    check_against_oracle(candidate, graph, batch_size);
  }
}

/// Ends a graph like a residual network.
void classify(Graph& graph, ValueId x, std::int64_t classes) {
  x = graph.flatten(graph.global_avg_pool(x));
  x = graph.linear(x, {.name = "fc", .out_features = classes});
  graph.softmax_cross_entropy(x, {});
}

struct ConvolutionCase {
  std::int64_t in_channels;
  std::int64_t out_channels;
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t height;
  std::int64_t width;
  std::int64_t batch_size;
  bool bias;
  std::int64_t groups = 1;
};

/// The convolution after a 1x1 convolution, so that its input gradient is checked too.
Graph convolution_graph(const ConvolutionCase& c) {
  Graph graph("conv " + std::to_string(c.in_channels) + " to " + std::to_string(c.out_channels) +
                  " kernel " + std::to_string(c.kernel) + " stride " + std::to_string(c.stride) +
                  " padding " + std::to_string(c.padding) + " groups " + std::to_string(c.groups) +
                  " of " + std::to_string(c.height) + "x" + std::to_string(c.width),
              {2, c.height, c.width});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "before", .out_channels = c.in_channels, .kernel = 1});
  x = graph.conv2d(x, {.name = "conv",
                       .out_channels = c.out_channels,
                       .kernel = c.kernel,
                       .stride = c.stride,
                       .padding = c.padding,
                       .groups = c.groups,
                       .bias = c.bias});
  classify(graph, x, 3);
  return graph;
}

/// conv, norm, relu.
ValueId unit(Graph& graph, ValueId x, const Conv2dOptions& options) {
  x = graph.batch_norm(graph.conv2d(x, options), {.name = options.name + ".bn"});
  return graph.relu(x);
}

/// Convolutions, norms of both kinds, ReLUs, GELUs, pools and sums in random order. Each op reads
/// random values of the same extent, so values have short and long lifetimes, and some have many
/// consumers. All contribute to the loss.
Graph random_graph(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t count) { return random() % count; };
  Graph graph("random graph " + std::to_string(seed), {3, 12, 10});
  struct Value {
    ValueId id;
    bool read;
  };
  std::vector<Value> values;
  int layers = 0;
  const auto name = [&layers](const char* op) { return op + std::to_string(layers++); };
  const auto read = [&values](std::size_t place) {
    values[place].read = true;
    return values[place].id;
  };
  // The sum of all values without a consumer.
  const auto sum = [&] {
    ValueId total = -1;
    for (const Value& value : values) {
      if (!value.read) total = total < 0 ? value.id : graph.add(total, value.id);
    }
    return total;
  };
  ValueId x = graph.input();
  for (const std::int64_t channels : {8, 19, 32}) {
    x = graph.conv2d(x,
                     {.name = name("conv"), .out_channels = channels, .kernel = 3, .padding = 1});
    values = {{.id = graph.batch_norm(x, {.name = name("bn")}), .read = false}};
    for (std::size_t op = 3 + below(6); op-- > 0;) {
      const std::size_t place = below(values.size());
      const ValueId from = read(place);
      ValueId made = -1;
      switch (below(7)) {
        case 0:
          made = graph.relu(from);
          break;
        case 1:
          made = graph.batch_norm(from, {.name = name("bn")});
          break;
        case 2:
          made = graph.add(from, read(below(values.size())));
          break;
        case 3:
          made = graph.append(Gelu{from});
          break;
        case 4:
          made = graph.append(LayerNorm{from, {.name = name("ln")}});
          break;
        case 5:
          made = graph.linear(
              from, {.name = name("linear"),
                     .out_features = graph.nodes()[static_cast<std::size_t>(from)].output[0]});
          break;
        default: {
          const auto half = static_cast<std::int64_t>(below(3));
          made = graph.conv2d(from, {.name = name("conv"),
                                     .out_channels = channels,
                                     .kernel = 2 * half + 1,
                                     .padding = half,
                                     .bias = half == 1});
        }
      }
      values.push_back({.id = made, .read = false});
    }
    x = graph.batch_norm(sum(), {.name = name("bn")});
    if (channels < 32) x = graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1});
  }
  classify(graph, x, 5);
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_CASE(convolutions_of_all_kernels_strides_and_paddings) {
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t padding : {std::int64_t{0}, kernel / 2}) {
        if (kernel == 1 && padding == 0 && stride == 2) continue;  // tested below
        check_all(convolution_graph({.in_channels = 16,
                                     .out_channels = 17,
                                     .kernel = kernel,
                                     .stride = stride,
                                     .padding = padding,
                                     .height = 9,
                                     .width = 8,
                                     .batch_size = 2,
                                     .bias = stride == 1}),
                  2);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(convolutions_of_odd_channels) {
  std::int64_t batch_size = 1;
  for (const std::int64_t in_channels : {1, 3, 5, 16, 17, 33}) {
    for (const std::int64_t out_channels : {1, 3, 16, 33}) {
      const bool odd = (in_channels + out_channels) % 2 == 1;
      check_all(convolution_graph({.in_channels = in_channels,
                                   .out_channels = out_channels,
                                   .kernel = odd ? 1 : 3,
                                   .stride = batch_size % 2 + 1,
                                   .padding = odd ? 0 : 1,
                                   .height = 5,
                                   .width = 7,
                                   .batch_size = batch_size,
                                   .bias = odd}),
                batch_size);
      batch_size = batch_size % 5 + 1;
    }
  }
}

// With groups, all precisions of a GPU support channel counts that are multiples of 8.
BOOST_AUTO_TEST_CASE(convolutions_of_several_groups) {
  struct Case {
    std::int64_t in_channels, out_channels, groups, kernel;
  };
  for (const Case& c : {Case{16, 24, 2, 3}, Case{32, 32, 8, 3}, Case{24, 48, 24, 3},
                        Case{8, 8, 8, 5}, Case{64, 32, 4, 1}}) {
    for (const std::int64_t stride : {1, 2}) {
      check_all(convolution_graph({.in_channels = c.in_channels,
                                   .out_channels = c.out_channels,
                                   .kernel = c.kernel,
                                   .stride = stride,
                                   .padding = c.kernel / 2,
                                   .height = 7,
                                   .width = 6,
                                   .batch_size = 3,
                                   .bias = stride == 1,
                                   .groups = c.groups}),
                3);
    }
  }
}

// With AMX, matrix products compute 16-bit gradients of large convolutions with one group only.
BOOST_AUTO_TEST_CASE(large_convolutions_of_several_groups) {
  for (const std::int64_t kernel : {1, 3}) {
    check_all(convolution_graph({.in_channels = 256,
                                 .out_channels = 256,
                                 .kernel = kernel,
                                 .stride = 1,
                                 .padding = kernel / 2,
                                 .height = 5,
                                 .width = 4,
                                 .batch_size = 2,
                                 .bias = false,
                                 .groups = 2}),
              2);
  }
}

// With AMX, matrix products compute 16-bit gradients of convolutions with enough channels.
BOOST_AUTO_TEST_CASE(convolutions_computed_as_matrix_products) {
  for (const ConvolutionCase& c : {ConvolutionCase{64, 64, 1, 1, 0, 5, 7, 3, false},
                                   ConvolutionCase{96, 48, 1, 2, 0, 6, 5, 2, false},
                                   ConvolutionCase{128, 128, 3, 1, 1, 4, 8, 2, false},
                                   ConvolutionCase{128, 144, 3, 2, 1, 9, 7, 1, false},
                                   ConvolutionCase{144, 128, 3, 1, 0, 5, 4, 2, false}}) {
    check_all(convolution_graph(c), c.batch_size);
  }
}

// The algorithm uses tiles of 2x2 or 4x4 pixels and vectors of 8 or 16 channels: tests partial
// tiles and vectors, several blocks of tiles, and panels of a large filter.
BOOST_AUTO_TEST_CASE(convolutions_computed_by_winograds_algorithm) {
  struct Case {
    std::int64_t in_channels, out_channels, padding, height, width, batch_size;
  };
  for (const Case& c :
       {Case{16, 16, 1, 8, 8, 4}, Case{16, 48, 0, 9, 6, 3}, Case{17, 33, 1, 5, 7, 5},
        Case{48, 32, 1, 13, 12, 1}, Case{64, 64, 1, 4, 4, 8}, Case{16, 16, 1, 28, 28, 1},
        Case{40, 24, 0, 3, 3, 2}, Case{20, 16, 2, 6, 9, 2}, Case{64, 64, 1, 28, 28, 2},
        Case{136, 200, 1, 8, 8, 3}}) {
    for (const bool bias : {false, true}) {
      const Graph graph = convolution_graph({.in_channels = c.in_channels,
                                             .out_channels = c.out_channels,
                                             .kernel = 3,
                                             .stride = 1,
                                             .padding = c.padding,
                                             .height = c.height,
                                             .width = c.width,
                                             .batch_size = c.batch_size,
                                             .bias = bias});
      for (const Candidate& candidate : candidates()) {
        // Other precisions are compared with random roundings of the oracle, which takes long.
        if (candidate.precision != Precision::fp32) continue;
        check_against_oracle(candidate, graph, c.batch_size);
      }
    }
  }
}

// Here the oracle rounds as an engine does that computes in bf16 throughout, and the engine may
// round less.
BOOST_AUTO_TEST_CASE(bf16_convolutions_computed_by_winograds_algorithm) {
  if (!cpu_computes_in(Precision::bf16)) return;
  const Candidate candidate{.name = "cpu, 2 threads, bf16, winograd",
                            .make =
                                [](const Graph& graph) {
                                  return make_cpu_engine(graph,
                                                         {.threads = 2,
                                                          .tail_size = 7,
                                                          .precision = Precision::bf16,
                                                          .convolutions = all_winograd(graph)});
                                },
                            .precision = Precision::bf16};
  for (const bool bias : {false, true}) {
    check_against_oracle(candidate,
                         convolution_graph({.in_channels = 40,
                                            .out_channels = 24,
                                            .kernel = 3,
                                            .stride = 1,
                                            .padding = 1,
                                            .height = 9,
                                            .width = 6,
                                            .batch_size = 3,
                                            .bias = bias}),
                         3);
  }
}

BOOST_AUTO_TEST_CASE(first_convolutions_of_images) {
  for (const std::int64_t channels : {1, 3, 4}) {
    for (const std::int64_t kernel : {3, 5, 7}) {
      Graph graph("stem of " + std::to_string(channels) + " channels", {channels, 13, 11});
      ValueId x = unit(graph, graph.input(),
                       {.name = "conv1",
                        .out_channels = 24,
                        .kernel = kernel,
                        .stride = 2,
                        .padding = kernel / 2});
      classify(graph, graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}), 10);
      check_all(graph, 3);
    }
  }
}

BOOST_AUTO_TEST_CASE(batch_norms_with_and_without_relu) {
  for (const std::int64_t channels : {1, 5, 16, 17, 33}) {
    for (const bool relu : {false, true}) {
      Graph graph("norm of " + std::to_string(channels) + (relu ? " with relu" : ""), {3, 5, 3});
      ValueId x =
          graph.conv2d(graph.input(), {.name = "conv", .out_channels = channels, .kernel = 1});
      x = graph.batch_norm(x, {.name = "bn", .eps = 1e-3});
      if (relu) x = graph.relu(x);
      x = graph.conv2d(x, {.name = "conv2", .out_channels = 6, .kernel = 3});
      classify(graph, x, 4);
      check_all(graph, 4);
    }
  }
}

BOOST_AUTO_TEST_CASE(gelus_of_images_pixels_and_flat_values) {
  for (const std::int64_t channels : {1, 16, 33}) {
    Graph graph("gelu of " + std::to_string(channels), {3, 5, 3});
    ValueId x = graph.append(Gelu{graph.input()});
    x = graph.conv2d(x, {.name = "conv", .out_channels = channels, .kernel = 3, .bias = true});
    x = graph.linear(graph.flatten(graph.append(Gelu{x})), {.name = "fc1", .out_features = 21});
    x = graph.linear(graph.append(Gelu{x}), {.name = "fc2", .out_features = 4});
    graph.softmax_cross_entropy(x, {});
    check_all(graph, 4);
  }
}

// If an op overwrites its input, or its output is overwritten, in spite of its derivative, that is
// wrong.
BOOST_AUTO_TEST_CASE(activations_between_sums_and_each_other) {
  Graph graph("activations", {3, 6, 5});
  const ValueId stem =
      graph.conv2d(graph.input(), {.name = "stem", .out_channels = 17, .kernel = 3, .bias = true});
  ValueId x = graph.append(Gelu{stem});
  x = graph.add(graph.relu(x), graph.append(Gelu{x}));
  x = graph.append(Gelu{graph.relu(x)});
  x = graph.relu(graph.append(Gelu{x}));
  classify(graph, graph.add(graph.append(Gelu{graph.add(x, stem)}), graph.relu(x)), 5);
  check_all(graph, 3);
}

// Of one row, of more rows than a sum over rows has parts, of images, and before a loss.
BOOST_AUTO_TEST_CASE(layer_norms_of_images_pixels_and_flat_values) {
  for (const std::int64_t channels : {2, 5, 16, 33, 300}) {
    Graph graph("layer norm of " + std::to_string(channels), {3, 9, 8});
    ValueId x = graph.append(LayerNorm{graph.input(), {.name = "ln1", .eps = 0.1}});
    x = graph.conv2d(x, {.name = "conv", .out_channels = channels, .kernel = 1});
    x = graph.append(LayerNorm{x, {.name = "ln2", .eps = 1e-2}});
    x = graph.conv2d(x, {.name = "conv2", .out_channels = 6, .kernel = 3, .stride = 2});
    x = graph.linear(graph.flatten(x), {.name = "fc1", .out_features = channels});
    x = graph.append(LayerNorm{x, {.name = "ln3", .eps = 1e-2}});
    x = graph.linear(x, {.name = "fc2", .out_features = 4});
    graph.softmax_cross_entropy(graph.append(LayerNorm{x, {.name = "ln4"}}), {});
    for (const std::int64_t batch_size : {1, 5}) check_all(graph, batch_size);
  }
}

BOOST_AUTO_TEST_CASE(linear_layers_of_pixels) {
  for (const std::int64_t channels : {2, 5, 16, 33}) {
    Graph graph("linear of " + std::to_string(channels), {3, 5, 4});
    ValueId x = graph.linear(graph.input(), {.name = "fc1", .out_features = channels});
    x = graph.relu(graph.linear(x, {.name = "fc2", .out_features = 7}));
    classify(graph, graph.add(x, graph.linear(x, {.name = "fc3", .out_features = 7})), 4);
    for (const std::int64_t batch_size : {1, 5}) check_all(graph, batch_size);
  }
}

// Heads of one channel and of more than a vector, tokens of one query block and of three.
BOOST_AUTO_TEST_CASE(attention_over_tokens) {
  struct Case {
    std::int64_t heads, width, height;
  };
  for (const Case& each :
       {Case{1, 8, 4}, Case{2, 1, 3}, Case{3, 3, 5}, Case{2, 20, 1}, Case{1, 4, 33}}) {
    const std::int64_t channels = each.heads * each.width;
    Graph graph(fmt::format("attention of {} heads of {}", each.heads, each.width),
                {3, each.height, 4});
    ValueId x =
        graph.conv2d(graph.input(), {.name = "conv", .out_channels = channels, .kernel = 1});
    const ValueId tokens =
        graph.append(Tokens{x, {.class_token = "class_token", .positions = "positions"}});
    x = graph.linear(tokens, {.name = "in_proj", .out_features = 3 * channels, .separator = '_'});
    x = graph.append(Attention{x, {.name = "attention", .heads = each.heads}});
    x = graph.append(FirstToken{graph.add(x, tokens)});
    graph.softmax_cross_entropy(graph.linear(x, {.name = "fc", .out_features = 4}), {});
    for (const std::int64_t batch_size : {1, 5}) check_all(graph, batch_size);
  }
}

BOOST_AUTO_TEST_CASE(tokens_that_are_frozen_in_part) {
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"class_token"}, {"positions"}, {"class_token", "positions"}}) {
    Graph graph("frozen tokens", {3, 2, 3});
    ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 12, .kernel = 1});
    x = graph.append(Tokens{x, {.class_token = "class_token", .positions = "positions"}});
    x = graph.append(FirstToken{graph.append(Attention{
        graph.linear(x, {.name = "fc1", .out_features = 12}), {.name = "attention", .heads = 2}})});
    graph.softmax_cross_entropy(x, {});
    for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
      const bool freezes = std::ranges::count(frozen, graph.parameters()[id].name) != 0;
      if (freezes) graph.set_lr_scale(static_cast<ParameterId>(id), 0);
    }
    check_all(graph, 3);
  }
}

BOOST_AUTO_TEST_CASE(a_vision_transformer) {
  check_all(
      make_model("mini-vit",
                 {.image = {.channels = 3, .height = 12, .width = 8}, .classes = 4, .width = 24}),
      3);
}

BOOST_AUTO_TEST_CASE(layer_norms_that_are_frozen_in_part) {
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"ln.weight"},
                                                 {"ln.bias"},
                                                 {"ln.weight", "ln.bias"},
                                                 {"conv.weight"},
                                                 {"conv.weight", "ln.weight", "ln.bias"}}) {
    Graph graph("frozen layer norm", {3, 5, 4});
    ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 17, .kernel = 1});
    classify(graph, graph.append(LayerNorm{x, {.name = "ln"}}), 4);
    for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
      const bool freezes = std::ranges::count(frozen, graph.parameters()[id].name) != 0;
      if (freezes) graph.set_lr_scale(static_cast<ParameterId>(id), 0);
    }
    check_all(graph, 3);
  }
}

BOOST_AUTO_TEST_CASE(a_batch_norm_of_images) {
  Graph graph("norm of images", {3, 4, 5});
  classify(graph, graph.relu(graph.batch_norm(graph.input(), {.name = "bn"})), 4);
  check_all(graph, 3);
}

BOOST_AUTO_TEST_CASE(a_batch_norm_of_images_that_is_added_to_another) {
  Graph graph("norm of images plus norm", {3, 4, 5});
  const ValueId left = graph.batch_norm(graph.input(), {.name = "bn1"});
  const ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 3, .kernel = 1});
  const ValueId right = graph.batch_norm(x, {.name = "bn2"});
  classify(graph, graph.relu(graph.add(left, right)), 4);
  check_all(graph, 3);
}

// An odd number of pixels, so that 16-bit mask bytes and folded rows of 12 fp32 channels hold
// pixels of two samples.
BOOST_AUTO_TEST_CASE(samples_drop_residual_branches) {
  enum class Shortcut { identity, norm, dropped_norm };
  for (const std::int64_t channels : {1, 12, 16, 33}) {
    for (const Shortcut shortcut : {Shortcut::identity, Shortcut::norm, Shortcut::dropped_norm}) {
      const bool drops = shortcut == Shortcut::dropped_norm;
      Graph graph(fmt::format("stochastic depth of {} with shortcut {}", channels,
                              static_cast<int>(shortcut)),
                  {3, 5, 3});
      ValueId x = unit(graph, graph.input(),
                       {.name = "stem", .out_channels = channels, .kernel = 3, .padding = 1});
      for (const int block : {1, 63}) {
        const std::string name = "block" + std::to_string(block);
        const ValueId branch = graph.batch_norm(
            graph.conv2d(x, {.name = name, .out_channels = channels, .kernel = 1}),
            {.name = name + ".bn", .drop = {.probability = 0.375, .block = block}});
        if (shortcut == Shortcut::identity) {
          x = graph.add(branch, x);
        } else {
          const ValueId other =
              graph.conv2d(x, {.name = name + ".shortcut", .out_channels = channels, .kernel = 1});
          const StochasticDepth drop{.probability = drops ? 0.5 : 0, .block = block - 1};
          x = graph.add(branch,
                        graph.batch_norm(other, {.name = name + ".shortcut.bn", .drop = drop}));
        }
        x = graph.relu(x);
      }
      classify(graph, x, 4);
      check_all(graph, 5);
    }
  }
}

BOOST_AUTO_TEST_CASE(samples_drop_a_norm_that_is_not_added) {
  Graph graph("stochastic depth without addition", {3, 4, 5});
  ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 9, .kernel = 1});
  x = graph.batch_norm(x, {.name = "bn", .drop = {.probability = 0.25, .block = 2}});
  classify(graph, graph.conv2d(x, {.name = "conv2", .out_channels = 6, .kernel = 3}), 4);
  check_all(graph, 5);
}

BOOST_AUTO_TEST_CASE(pooling_with_overlapping_windows_and_remainders) {
  for (const std::int64_t kernel : {2, 3}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t padding : {0, 1}) {
        Graph graph("max pool " + std::to_string(kernel) + " stride " + std::to_string(stride) +
                        " padding " + std::to_string(padding),
                    {2, 8, 7});
        ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 19, .kernel = 1});
        x = graph.max_pool(x, {.kernel = kernel, .stride = stride, .padding = padding});
        x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 3});
        graph.softmax_cross_entropy(x, {});
        check_all(graph, 2);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(averages_of_windows_count_padding_as_zeros) {
  struct Case {
    std::int64_t kernel, stride, padding, height, width;
  };
  for (const Case& c :
       {Case{2, 2, 0, 8, 7}, Case{2, 2, 1, 7, 5}, Case{3, 2, 1, 9, 8}, Case{3, 1, 1, 5, 5},
        Case{3, 3, 0, 7, 8}, Case{5, 2, 2, 6, 11}, Case{2, 3, 1, 7, 6}}) {
    Graph graph("average pool " + std::to_string(c.kernel) + " stride " + std::to_string(c.stride) +
                    " padding " + std::to_string(c.padding),
                {2, c.height, c.width});
    ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 19, .kernel = 1});
    x = graph.avg_pool(x, {.kernel = c.kernel, .stride = c.stride, .padding = c.padding});
    x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 3});
    graph.softmax_cross_entropy(x, {});
    check_all(graph, 2);
  }
}

BOOST_AUTO_TEST_CASE(averages_of_partial_windows_are_of_the_pixels_within_the_image) {
  struct Case {
    std::int64_t kernel, stride, padding, height, width;
  };
  for (const Case& c : {Case{2, 2, 0, 7, 8}, Case{2, 2, 0, 1, 3}, Case{3, 2, 1, 8, 9},
                        Case{3, 3, 0, 7, 8}, Case{2, 3, 1, 7, 6}, Case{3, 3, 1, 8, 7}}) {
    Graph graph("partial average pool " + std::to_string(c.kernel) + " stride " +
                    std::to_string(c.stride) + " padding " + std::to_string(c.padding),
                {2, c.height, c.width});
    ValueId x = graph.conv2d(graph.input(), {.name = "conv", .out_channels = 19, .kernel = 1});
    x = graph.avg_pool(
        x, {.kernel = c.kernel, .stride = c.stride, .padding = c.padding, .partial_windows = true});
    x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 3});
    graph.softmax_cross_entropy(x, {});
    check_all(graph, 2);
  }
}

BOOST_AUTO_TEST_CASE(an_input_need_not_be_an_image) {
  for (const std::int64_t features : {1, 17, 64}) {
    Graph graph("input of " + std::to_string(features), {features});
    const ValueId x = graph.linear(graph.input(), {.name = "fc1", .out_features = 19});
    graph.softmax_cross_entropy(graph.linear(graph.relu(x), {.name = "fc2", .out_features = 7}),
                                {});
    check_all(graph, 6);
  }
}

BOOST_AUTO_TEST_CASE(flatten_keeps_the_order_of_torch) {
  Graph graph("flattened convolution", {1, 6, 5});
  ValueId x =
      graph.relu(graph.conv2d(graph.input(), {.name = "conv", .out_channels = 18, .kernel = 3}));
  x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 7});
  graph.softmax_cross_entropy(x, {});
  check_all(graph, 3);
}

BOOST_AUTO_TEST_CASE(classifiers_of_2_to_1000_classes_with_smoothing) {
  for (const std::int64_t classes : {2, 4, 5, 6, 33, 1000}) {
    for (const std::int64_t batch_size : {1, 5}) {
      Graph graph("mlp of " + std::to_string(classes), {1, 3, 5});
      ValueId x = graph.linear(graph.flatten(graph.input()), {.name = "fc1", .out_features = 13});
      x = graph.linear(graph.relu(x), {.name = "fc2", .out_features = classes});
      graph.softmax_cross_entropy(x, {.label_smoothing = batch_size == 1 ? 0.0 : 0.1});
      check_all(graph, batch_size);
    }
  }
}

BOOST_AUTO_TEST_CASE(mixed_targets_with_and_without_smoothing) {
  for (const std::int64_t classes : {2, 5, 33, 1000}) {
    for (const double smoothing : {0.0, 0.1}) {
      Graph graph("mlp of " + std::to_string(classes), {1, 3, 5});
      ValueId x = graph.linear(graph.flatten(graph.input()), {.name = "fc1", .out_features = 13});
      x = graph.linear(graph.relu(x), {.name = "fc2", .out_features = classes});
      graph.softmax_cross_entropy(x, {.label_smoothing = smoothing});
      for (const Candidate& candidate : candidates()) {
        check_mixed_against_oracle(candidate, graph, 7);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(binary_cross_entropy_of_2_to_1000_classes) {
  struct Case {
    std::int64_t classes;
    double smoothing, threshold;
  };
  for (const Case& c : {Case{2, 0, 0}, Case{5, 0.1, 0}, Case{33, 0, 0.2}, Case{1000, 0.1, 0.4}}) {
    Graph graph("binary mlp of " + std::to_string(c.classes), {1, 3, 5});
    ValueId x = graph.linear(graph.flatten(graph.input()), {.name = "fc1", .out_features = 13});
    x = graph.linear(graph.relu(x), {.name = "fc2", .out_features = c.classes});
    graph.binary_cross_entropy(x,
                               {.label_smoothing = c.smoothing, .target_threshold = c.threshold});
    check_all(graph, 5);
    for (const Candidate& candidate : candidates()) {
      check_mixed_against_oracle(candidate, graph, 7);
    }
  }
}

BOOST_AUTO_TEST_CASE(mean_squared_error_of_2_to_1000_classes) {
  for (const std::int64_t classes : {2, 33, 1000}) {
    Graph graph("regression of " + std::to_string(classes), {1, 3, 5});
    ValueId x = graph.linear(graph.flatten(graph.input()), {.name = "fc1", .out_features = 13});
    x = graph.linear(graph.relu(x), {.name = "fc2", .out_features = classes});
    graph.mean_squared_error(x, {.label_smoothing = classes == 33 ? 0.1 : 0.0});
    check_all(graph, 5);
    for (const Candidate& candidate : candidates()) {
      check_mixed_against_oracle(candidate, graph, 7);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_basic_block_and_a_projected_one) {
  Graph graph("residual", {3, 9, 7});
  ValueId x =
      unit(graph, graph.input(), {.name = "stem", .out_channels = 17, .kernel = 3, .padding = 1});
  for (const std::int64_t stride : {1, 2}) {
    const std::string name = "block" + std::to_string(stride);
    const std::int64_t channels = 17 * stride;
    ValueId shortcut = x;
    x = unit(graph, x,
             {.name = name + ".conv1",
              .out_channels = channels,
              .kernel = 3,
              .stride = stride,
              .padding = 1});
    x = graph.conv2d(
        x, {.name = name + ".conv2", .out_channels = channels, .kernel = 3, .padding = 1});
    x = graph.batch_norm(x, {.name = name + ".bn2"});
    if (stride == 2) {
      shortcut = graph.conv2d(
          shortcut, {.name = name + ".down", .out_channels = channels, .kernel = 1, .stride = 2});
      shortcut = graph.batch_norm(shortcut, {.name = name + ".down.bn"});
    }
    x = graph.relu(graph.add(x, shortcut));
  }
  classify(graph, x, 5);
  for (const std::int64_t batch_size : {1, 2, 5}) check_all(graph, batch_size);
}

// Every other pattern freezes the first parameters, so that backward ends early.
BOOST_AUTO_TEST_CASE(frozen_parameters_have_no_gradient) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    Graph graph = random_graph(seed);
    std::mt19937 random(seed);
    const auto count = static_cast<unsigned>(graph.parameters().size());
    for (unsigned id = 0; id + 2 < count; ++id) {
      const bool frozen = seed % 2 == 0 ? id < count * seed / 8 : random() % 2 == 0;
      if (frozen) graph.set_lr_scale(static_cast<ParameterId>(id), 0);
    }
    for (const Candidate& candidate : candidates()) {
      if (candidate.precision == Precision::fp32 || seed == 1) {
        check_against_oracle(candidate, graph, 4);
      }
    }
  }
}

/// Freezes the norms for which `chosen` is true, and fixes their statistics.
template <typename Chosen>
void fix_norms(Graph& graph, Chosen chosen) {
  for (const Node& node : graph.nodes()) {
    if (node.statistics.empty() || !chosen()) continue;
    for (const ParameterId id : node.parameters) graph.set_lr_scale(id, 0);
    graph.fix_statistics(node);
  }
}

BOOST_AUTO_TEST_CASE(norms_with_fixed_statistics) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    Graph graph = random_graph(seed);
    std::mt19937 random(seed);
    fix_norms(graph, [&] { return seed == 1 || random() % 2 == 0; });
    for (const Candidate& candidate : candidates()) {
      if (candidate.precision == Precision::fp32 || seed == 2) {
        check_against_oracle(candidate, graph, 4);
      }
    }
  }
}

// Their steps include the ReLU, the addition, the norm of a projection or the pool.
BOOST_AUTO_TEST_CASE(residual_blocks_with_fixed_statistics) {
  for (const unsigned pattern : {1U, 2U, 3U}) {
    Graph graph = make_model("mini-resnet", {.image = {.channels = 3, .height = 16, .width = 16},
                                             .classes = 7,
                                             .width = 8,
                                             .stem = Stem::conv7x7,
                                             .stochastic_depth = 0.3});
    unsigned number = 0;
    fix_norms(graph, [&] { return pattern == 3 || ++number % 2 == pattern % 2; });
    for (const Candidate& candidate : candidates()) {
      if (candidate.precision == Precision::fp32 || pattern == 3) {
        check_against_oracle(candidate, graph, 4);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_bottleneck_block) {
  Graph graph("bottleneck", {3, 7, 7});
  ValueId x =
      unit(graph, graph.input(), {.name = "stem", .out_channels = 32, .kernel = 3, .padding = 1});
  ValueId y = unit(graph, x, {.name = "a", .out_channels = 8, .kernel = 1});
  y = unit(graph, y, {.name = "b", .out_channels = 8, .kernel = 3, .padding = 1});
  y = graph.batch_norm(graph.conv2d(y, {.name = "c", .out_channels = 32, .kernel = 1}),
                       {.name = "bn"});
  classify(graph, graph.relu(graph.add(x, y)), 5);
  check_all(graph, 3);
}

BOOST_AUTO_TEST_CASE(values_with_many_consumers) {
  Graph graph("many consumers", {3, 6, 5});
  const ValueId x =
      graph.conv2d(graph.input(), {.name = "stem", .out_channels = 17, .kernel = 3, .bias = true});
  const ValueId relu = graph.relu(x);  // x has other consumers, so the ReLU is not in place
  const ValueId doubled = graph.add(x, x);
  const ValueId a = graph.conv2d(x, {.name = "a", .out_channels = 17, .kernel = 1});
  const ValueId b = graph.batch_norm(x, {.name = "b"});
  ValueId sum = graph.add(relu, doubled);
  sum = graph.add(sum, a);
  sum = graph.add(b, sum);
  sum = graph.add(sum, graph.relu(b));  // b has two consumers, so its ReLU is not fused
  const ValueId again = graph.relu(graph.relu(sum));
  ValueId logits = graph.linear(graph.flatten(again), {.name = "fc", .out_features = 5});
  logits = graph.add(logits, graph.linear(graph.flatten(graph.global_avg_pool(again)),
                                          {.name = "fc2", .out_features = 5}));
  graph.softmax_cross_entropy(logits, {.label_smoothing = 0.2});
  check_all(graph, 4);
}

BOOST_AUTO_TEST_CASE(a_shortcut_from_the_images) {
  Graph graph("shortcut from images", {3, 5, 5});
  ValueId x = graph.relu(graph.input());
  x = graph.conv2d(x, {.name = "conv", .out_channels = 3, .kernel = 3, .padding = 1});
  classify(graph, graph.relu(graph.add(graph.input(), x)), 3);
  check_all(graph, 2);
}

BOOST_AUTO_TEST_CASE(sums_of_sums) {
  Graph graph("sums of sums", {2, 4, 4});
  const ValueId a = graph.conv2d(graph.input(), {.name = "a", .out_channels = 4, .kernel = 1});
  const ValueId b = graph.conv2d(graph.input(), {.name = "b", .out_channels = 4, .kernel = 1});
  const ValueId c = graph.conv2d(b, {.name = "c", .out_channels = 4, .kernel = 1});
  const ValueId inner = graph.add(a, b);
  const ValueId outer = graph.add(graph.add(inner, c), b);
  classify(graph, graph.add(outer, inner), 3);
  check_all(graph, 2);
}

// A gradient that one of its consumers overwrites in place is wrong for the others.
BOOST_AUTO_TEST_CASE(norms_that_share_their_gradient_with_other_values) {
  const auto conv = [](Graph& graph, ValueId x, std::string name) {
    return graph.conv2d(x, {.name = std::move(name), .out_channels = 17, .kernel = 1});
  };
  for (const bool relu_of_the_sum : {false, true}) {
    Graph graph(relu_of_the_sum ? "norm, addition and relu in a sum" : "norm and addition in a sum",
                {2, 5, 4});
    const ValueId x = conv(graph, graph.input(), "stem");
    const ValueId other = conv(graph, x, "other");
    const ValueId addend = graph.relu(conv(graph, x, "addend"));
    ValueId a = graph.batch_norm(conv(graph, x, "conv"), {.name = "bn"});
    a = graph.add(a, addend);
    if (relu_of_the_sum) a = graph.relu(a);
    classify(graph, graph.add(other, a), 3);
    check_all(graph, 3);
  }
}

// Deeper models have a ReLU input within a rounding error of zero, whose sign is then random. The
// parity test with PyTorch uses initial values without such inputs.
BOOST_AUTO_TEST_CASE(whole_models) {
  for (const char* name : {"mini-resnet", "simple-cnn", "mlp", "resnet18"}) {
    check_all(make_model(name, {.image = {.channels = 3, .height = 16, .width = 16},
                                .classes = 7,
                                .width = 8,
                                .zero_init_residual = false,
                                .label_smoothing = 0.1}),
              8);
  }
}

// If the plan places a value in memory that another value still needs, the results change.
BOOST_AUTO_TEST_CASE(random_graphs) {
  const Candidate keep_all{
      .name = "cpu, 2 threads, fp32, no recomputation", .make = [](const Graph& graph) {
        return make_cpu_engine(graph, {.threads = 2, .recompute = Recompute::none});
      }};
  for (unsigned seed = 1; seed <= 16; ++seed) {
    const Graph graph = random_graph(seed);
    if (std::getenv("LOCKSTEP_TEST_ENGINES") == nullptr) check_against_oracle(keep_all, graph, 4);
    for (const Candidate& candidate : candidates()) {
      // 16-bit results are compared with random roundings of the oracle, which takes long.
      if (candidate.precision == Precision::fp32 || seed == 1) {
        check_against_oracle(candidate, graph, 4);
      }
    }
  }
}
