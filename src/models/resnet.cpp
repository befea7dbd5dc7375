#include "lockstep/core/error.hpp"
#include "models_detail.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace lockstep::models_detail {
namespace {

/// Smaller images get a 3x3 stem without pooling, as is usual for CIFAR-sized images.
constexpr std::int64_t smallest_full_stem = 64;

bool is_large(const ImageShape& image) {
  return std::min(image.height, image.width) >= smallest_full_stem;
}

struct Variant {
  std::string_view name;
  bool is_bottleneck;
  std::array<int, 4> blocks;
  std::int64_t groups = 1;        ///< of a bottleneck's 3x3
  std::int64_t group_width = 64;  ///< channels of a group where the stem has 64
  bool has_full_stem = true;      ///< for large images
};
constexpr Variant variants[] = {
    {.name = "mini-resnet", .is_bottleneck = false, .blocks = {2, 2, 2}, .has_full_stem = false},
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
    {"resnet152", true, {3, 8, 36, 3}},
    {"resnext50_32x4d", true, {3, 4, 6, 3}, 32, 4},
    {"resnext101_32x8d", true, {3, 4, 23, 3}, 32, 8},
    {"resnext101_64x4d", true, {3, 4, 23, 3}, 64, 4},
    {"wide_resnet50_2", true, {3, 4, 6, 3}, 1, 128},
    {"wide_resnet101_2", true, {3, 4, 23, 3}, 1, 128}};

struct BlockOptions {
  std::string name;
  std::int64_t in_channels;
  std::int64_t width;  ///< channels of the output; of a bottleneck's, a quarter
  std::int64_t stride;
  bool zero_init_residual;
  Shortcut shortcut;
  StochasticDepth drop;
};

ValueId shortcut(Graph& graph, ValueId input, const BlockOptions& options,
                 std::int64_t out_channels) {
  if (options.stride == 1 && options.in_channels == out_channels) return input;
  const bool pools = options.shortcut == Shortcut::avgpool;
  if (pools && options.stride != 1) {
    input = graph.avg_pool(
        input, {.kernel = options.stride, .stride = options.stride, .partial_windows = true});
  }
  // As timm, which counts the pooling as a layer even where there is none.
  const int first = pools ? 1 : 0;
  const ValueId x =
      graph.conv2d(input, {.name = fmt::format("{}.downsample.{}", options.name, first),
                           .out_channels = out_channels,
                           .kernel = 1,
                           .stride = pools ? 1 : options.stride});
  return graph.batch_norm(x, {.name = fmt::format("{}.downsample.{}", options.name, first + 1)});
}

/// Of ResNet-D: three 3x3 convolutions, the first two with half of the channels.
ValueId deep_convolutions(Graph& graph, std::int64_t width, std::int64_t stride) {
  if (width % 2 != 0) {
    fail(ExitStatus::usage,
         "--width {} does not go with --stem deep (its first convolutions have half of the width); "
         "use an even width",
         width);
  }
  ValueId x = graph.conv2d(
      graph.input(),
      {.name = "conv1.0", .out_channels = width / 2, .kernel = 3, .stride = stride, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "conv1.1"}));
  x = graph.conv2d(x, {.name = "conv1.3", .out_channels = width / 2, .kernel = 3, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "conv1.4"}));
  return graph.conv2d(x, {.name = "conv1.6", .out_channels = width, .kernel = 3, .padding = 1});
}

/// 1x1, 3x3 (with the stride, as in ResNet v1.5), 1x1 and a shortcut; ends with relu.
ValueId bottleneck(Graph& graph, ValueId input, const BlockOptions& options,
                   const Variant& variant) {
  const std::string& name = options.name;
  const std::int64_t out_channels = 4 * options.width;
  const std::int64_t inner_channels = options.width * variant.group_width / 64 * variant.groups;
  ValueId x =
      graph.conv2d(input, {.name = name + ".conv1", .out_channels = inner_channels, .kernel = 1});
  x = graph.relu(graph.batch_norm(x, {.name = name + ".bn1"}));
  x = graph.conv2d(x, {.name = name + ".conv2",
                       .out_channels = inner_channels,
                       .kernel = 3,
                       .stride = options.stride,
                       .padding = 1,
                       .groups = variant.groups});
  x = graph.relu(graph.batch_norm(x, {.name = name + ".bn2"}));
  x = graph.conv2d(x, {.name = name + ".conv3", .out_channels = out_channels, .kernel = 1});
  x = graph.batch_norm(x, {.name = name + ".bn3",
                           .zero_init_weight = options.zero_init_residual,
                           .drop = options.drop});
  return graph.relu(graph.add(x, shortcut(graph, input, options, out_channels)));
}

/// Convolutions, norm and relu, with channels from options.width, or 64; then, if the stem is
/// full, pooling. The first convolution of a full stem has a stride. `usually_full`: whether it is
/// full unless options.stem says 7x7 or 3x3.
ValueId stem(Graph& graph, const ModelOptions& options, bool usually_full) {
  const bool full =
      options.stem == Stem::conv7x7 || (options.stem != Stem::conv3x3 && usually_full);
  const std::int64_t width = options.width == 0 ? 64 : options.width;
  const std::int64_t stride = full ? 2 : 1;
  const std::int64_t kernel = full ? 7 : 3;
  graph.begin_stage();
  ValueId x = options.stem == Stem::deep ? deep_convolutions(graph, width, stride)
                                         : graph.conv2d(graph.input(), {.name = "conv1",
                                                                        .out_channels = width,
                                                                        .kernel = kernel,
                                                                        .stride = stride,
                                                                        .padding = kernel / 2});
  x = graph.relu(graph.batch_norm(x, {.name = "bn1"}));
  return full ? graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}) : x;
}

/// Two 3x3 convolutions and a shortcut; ends with relu.
ValueId basic_block(Graph& graph, ValueId input, const BlockOptions& options) {
  const std::string& name = options.name;
  ValueId x = graph.conv2d(input, {.name = name + ".conv1",
                                   .out_channels = options.width,
                                   .kernel = 3,
                                   .stride = options.stride,
                                   .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = name + ".bn1"}));
  x = graph.conv2d(
      x, {.name = name + ".conv2", .out_channels = options.width, .kernel = 3, .padding = 1});
  x = graph.batch_norm(x, {.name = name + ".bn2",
                           .zero_init_weight = options.zero_init_residual,
                           .drop = options.drop});
  return graph.relu(graph.add(x, shortcut(graph, input, options, options.width)));
}

/// Appends pooling, flatten, `fc` and the loss.
void classifier(Graph& graph, ValueId input, const ModelOptions& options) {
  const ValueId x = graph.flatten(graph.global_avg_pool(input));
  const ValueId logits = graph.linear(x, {.name = "fc", .out_features = options.classes});
  add_loss(graph, logits, options);
}

}  // namespace

std::vector<std::string_view> resnet_names() {
  std::vector<std::string_view> names;
  for (const Variant& variant : variants) names.push_back(variant.name);
  return names;
}

Graph resnet(std::string_view name, const ModelOptions& options) {
  const Variant& variant = *std::ranges::find(variants, name, &Variant::name);
  const std::int64_t base = options.width == 0 ? 64 : options.width;
  if (base * variant.group_width % 64 != 0) {
    fail(ExitStatus::usage,
         "--width {} gives each group of {} a fraction of a channel (a group has {}/64 of the "
         "width); use a multiple of {}",
         base, name, variant.group_width, 64 / variant.group_width);
  }
  Graph graph(std::string(name), options.image.shape());
  ValueId x = stem(graph, options, variant.has_full_stem && is_large(options.image));
  std::int64_t channels = base;
  const int blocks = std::accumulate(variant.blocks.begin(), variant.blocks.end(), 0);
  for (int stage = 0; stage < 4; ++stage) {
    graph.begin_stage();
    const std::int64_t width = base << stage;
    for (int block = 0; block < variant.blocks[static_cast<std::size_t>(stage)]; ++block) {
      const int number = graph.begin_block();
      const BlockOptions block_options{
          .name = fmt::format("layer{}.{}", stage + 1, block),
          .in_channels = channels,
          .width = width,
          .stride = stage > 0 && block == 0 ? 2 : 1,
          .zero_init_residual = options.zero_init_residual,
          .shortcut = options.shortcut,
          .drop = {.probability = options.stochastic_depth * number / (blocks - 1),
                   .block = number}};
      x = variant.is_bottleneck ? bottleneck(graph, x, block_options, variant)
                                : basic_block(graph, x, block_options);
      channels = variant.is_bottleneck ? 4 * width : width;
    }
  }
  graph.end_blocks();
  classifier(graph, x, options);
  return graph;
}

}  // namespace lockstep::models_detail

namespace lockstep {

std::string stem_note(std::string_view name, const ModelOptions& options) {
  using models_detail::variants;
  const bool by_size = options.stem == Stem::standard || options.stem == Stem::deep;
  const auto* variant = std::ranges::find(variants, name, &models_detail::Variant::name);
  if (!by_size || models_detail::is_large(options.image) || variant == std::end(variants) ||
      !variant->has_full_stem) {
    return "";
  }
  const bool is_deep = options.stem == Stem::deep;
  return fmt::format("{}, as for images below {} pixels{}",
                     is_deep ? "deep stem without stride and pooling" : "3x3 stem without pooling",
                     models_detail::smallest_full_stem,
                     is_deep ? "" : "; --stem 7x7 gives torchvision's network");
}

}  // namespace lockstep
