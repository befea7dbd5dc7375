#include "lockstep/core/error.hpp"
#include "models_detail.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace lockstep::models_detail {
namespace {

struct Variant {
  std::string_view name;
  std::int64_t patch;  ///< height and width in pixels
  int depth;           ///< blocks
  std::int64_t heads;
  std::int64_t width;  ///< channels of a token
  std::int64_t ratio;  ///< of a perceptron's hidden channels to the width
};
constexpr std::array variants{
    Variant{"mini-vit", 4, 6, 4, 128, 2},     Variant{"vit_b_16", 16, 12, 12, 768, 4},
    Variant{"vit_b_32", 32, 12, 12, 768, 4},  Variant{"vit_l_16", 16, 24, 16, 1024, 4},
    Variant{"vit_l_32", 32, 24, 16, 1024, 4}, Variant{"vit_h_14", 14, 32, 16, 1280, 4}};

constexpr InitialValues zeros{Initialization::zeros};
constexpr InitialValues xavier{Initialization::xavier_uniform};

/// The variant with the options' width.
Variant variant_of(std::string_view name, const ModelOptions& options) {
  Variant result = *std::ranges::find(variants, name, &Variant::name);
  if (options.width != 0) result.width = options.width;
  if (result.width % result.heads != 0) {
    fail(ExitStatus::usage,
         "--width {} does not go with --model {} (its {} heads divide the width); use a multiple "
         "of {}",
         result.width, name, result.heads, result.heads);
  }
  const ImageShape& image = options.image;
  if (image.height % result.patch != 0 || image.width % result.patch != 0) {
    fail(ExitStatus::usage,
         "images of {}x{} do not go with --model {} (it divides them into patches of {}x{}); use "
         "a multiple of {}",
         image.height, image.width, name, result.patch, result.patch, result.patch);
  }
  return result;
}

ValueId norm(Graph& graph, ValueId input, const std::string& name) {
  constexpr double eps = 1e-6;
  return graph.append(LayerNorm{input, {.name = name, .eps = eps}});
}

ValueId attention(Graph& graph, ValueId input, const std::string& name, const Variant& variant) {
  ValueId x = graph.linear(input, {.name = name + ".in_proj",
                                   .out_features = 3 * variant.width,
                                   .initial_weight = xavier,
                                   .initial_bias = zeros,
                                   .separator = '_'});
  x = graph.append(Attention{x, {.name = name, .heads = variant.heads}});
  return graph.linear(
      x, {.name = name + ".out_proj", .out_features = variant.width, .initial_bias = zeros});
}

ValueId perceptron(Graph& graph, ValueId input, const std::string& name, const Variant& variant) {
  const InitialValues bias{Initialization::normal, 1e-6};
  ValueId x = graph.linear(input, {.name = name + ".0",
                                   .out_features = variant.ratio * variant.width,
                                   .initial_weight = xavier,
                                   .initial_bias = bias});
  x = graph.append(Gelu{x});
  return graph.linear(x, {.name = name + ".3",
                          .out_features = variant.width,
                          .initial_weight = xavier,
                          .initial_bias = bias});
}

/// Attention and a perceptron, each after a norm and around a shortcut.
ValueId block(Graph& graph, ValueId input, const std::string& name, const Variant& variant) {
  ValueId x =
      attention(graph, norm(graph, input, name + ".ln_1"), name + ".self_attention", variant);
  x = graph.add(x, input);
  return graph.add(perceptron(graph, norm(graph, x, name + ".ln_2"), name + ".mlp", variant), x);
}

}  // namespace

std::vector<std::string_view> vit_names() {
  std::vector<std::string_view> names;
  for (const Variant& variant : variants) names.push_back(variant.name);
  return names;
}

Graph vit(std::string_view name, const ModelOptions& options) {
  const Variant variant = variant_of(name, options);
  Graph graph(std::string(name), options.image.shape());
  graph.begin_stage();
  const double fan_in = static_cast<double>(options.image.channels * variant.patch * variant.patch);
  ValueId x =
      graph.conv2d(graph.input(),
                   {.name = "conv_proj",
                    .out_channels = variant.width,
                    .kernel = variant.patch,
                    .stride = variant.patch,
                    .bias = true,
                    .initial_weight = InitialValues{Initialization::normal, std::sqrt(1 / fan_in)},
                    .initial_bias = zeros});
  x = graph.append(Tokens{x, {.class_token = "class_token", .positions = "encoder.pos_embedding"}});
  graph.begin_stage();
  for (int i = 0; i < variant.depth; ++i) {
    graph.begin_block();
    x = block(graph, x, fmt::format("encoder.layers.encoder_layer_{}", i), variant);
  }
  graph.end_blocks();
  // Only this token is read, so only it is normalized.
  x = norm(graph, graph.append(FirstToken{x}), "encoder.ln");
  x = graph.linear(x, {.name = "heads.head",
                       .out_features = options.classes,
                       .initial_weight = zeros,
                       .initial_bias = zeros});
  add_loss(graph, x, options);
  return graph;
}

}  // namespace lockstep::models_detail
