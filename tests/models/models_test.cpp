#include "lockstep/models/models.hpp"
#include "core/refusal.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/graph/summary.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

using namespace lockstep;

namespace {

constexpr ImageShape cifar{.channels = 3, .height = 32, .width = 32};

std::map<std::string, Shape> shapes(const Graph& graph) {
  std::map<std::string, Shape> result;
  for (const Parameter& parameter : graph.parameters()) result[parameter.name] = parameter.shape;
  return result;
}

std::vector<std::string> names(const Graph& graph) {
  std::vector<std::string> result;
  for (const Parameter& parameter : graph.parameters()) result.push_back(parameter.name);
  return result;
}

const Node& layer(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
        const auto* conv = std::get_if<Conv2d>(&node.op);
        return conv != nullptr && conv->options.name == name;
      });
  BOOST_REQUIRE(found != graph.nodes().end());
  return *found;
}

template <typename T>
auto count_of(const Graph& graph) {
  return std::count_if(graph.nodes().begin(), graph.nodes().end(),
                       [](const Node& node) { return std::holds_alternative<T>(node.op); });
}

}  // namespace

BOOST_AUTO_TEST_CASE(resnets_have_torchvisions_parameter_counts) {
  const std::map<std::string, std::int64_t> expected{
      {"resnet18", 11'689'512},         {"resnet34", 21'797'672},
      {"resnet50", 25'557'032},         {"resnet101", 44'549'160},
      {"resnet152", 60'192'808},        {"resnext50_32x4d", 25'028'904},
      {"resnext101_32x8d", 88'791'336}, {"resnext101_64x4d", 83'455'272},
      {"wide_resnet50_2", 68'883'240},  {"wide_resnet101_2", 126'886'696}};
  for (const auto& [name, count] : expected) {
    BOOST_TEST(make_model(name, {}).parameter_count() == count, name);
  }
}

BOOST_AUTO_TEST_CASE(resnet50_at_224_takes_4_09_billion_multiply_adds) {
  // The number that torchvision publishes for v1.5; v1 has 3.86 billion.
  const auto count = static_cast<double>(summarize_model(make_model("resnet50", {})).multiply_adds);

  BOOST_TEST(count == 4.089e9, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(resnext50_has_3x3_convolutions_of_32_groups_from_width_4) {
  const Graph graph = make_model("resnext50_32x4d", {});
  const auto shape = shapes(graph);

  BOOST_TEST((shape.at("layer1.0.conv1.weight") == Shape{128, 64, 1, 1}));
  BOOST_TEST((shape.at("layer1.0.conv2.weight") == Shape{128, 4, 3, 3}));
  BOOST_TEST((shape.at("layer4.2.conv2.weight") == Shape{1024, 32, 3, 3}));
  BOOST_TEST((layer(graph, "layer4.2.conv3").output == Shape{2048, 7, 7}));
  // The number that torchvision publishes.
  const auto count = static_cast<double>(summarize_model(graph).multiply_adds);
  BOOST_TEST(count == 4.23e9, boost::test_tools::tolerance(0.01));
  const auto narrow = shapes(make_model("resnext50_32x4d", {.image = cifar, .width = 16}));
  BOOST_TEST((narrow.at("layer1.0.conv2.weight") == Shape{32, 1, 3, 3}));
}

BOOST_AUTO_TEST_CASE(a_bottleneck_has_its_stride_in_the_3x3) {
  const Graph graph = make_model("resnet50", {});

  BOOST_TEST((layer(graph, "layer2.0.conv1").output == Shape{128, 56, 56}));
  BOOST_TEST((layer(graph, "layer2.0.conv2").output == Shape{128, 28, 28}));
  BOOST_TEST((layer(graph, "layer4.2.conv3").output == Shape{2048, 7, 7}));
}

BOOST_AUTO_TEST_CASE(every_model_ends_with_a_loss_over_its_classes) {
  for (const std::string_view name : model_names()) {
    const Graph graph = make_model(name, {.classes = 7, .label_smoothing = 0.1});

    BOOST_TEST(graph.name() == name);
    const auto* loss = std::get_if<SoftmaxCrossEntropy>(&graph.nodes().back().op);
    BOOST_REQUIRE(loss != nullptr);
    BOOST_TEST(loss->options.label_smoothing == 0.1);
    BOOST_TEST((graph.nodes()[graph.nodes().size() - 2].output == Shape{7}));
  }
}

BOOST_AUTO_TEST_CASE(every_model_ends_with_binary_cross_entropy_on_request) {
  for (const std::string_view name : model_names()) {
    const Graph graph = make_model(
        name, {.classes = 7, .label_smoothing = 0.1, .loss = "bce", .bce_target_threshold = 0.2});

    const auto* loss = std::get_if<BinaryCrossEntropy>(&graph.nodes().back().op);
    BOOST_REQUIRE(loss != nullptr);
    BOOST_TEST(loss->options.label_smoothing == 0.1);
    BOOST_TEST(loss->options.target_threshold == 0.2);
  }
}

BOOST_AUTO_TEST_CASE(the_stem_does_not_shrink_small_images) {
  const auto at = [](std::int64_t height, std::int64_t width) {
    return make_model("resnet18", {.image = {.channels = 3, .height = height, .width = width}});
  };

  BOOST_TEST((shapes(at(63, 100)).at("conv1.weight") == Shape{64, 3, 3, 3}));
  BOOST_TEST(count_of<MaxPool>(at(63, 100)) == 0);
  BOOST_TEST((layer(at(32, 32), "layer1.0.conv1").output == Shape{64, 32, 32}));
  BOOST_TEST((shapes(at(64, 64)).at("conv1.weight") == Shape{64, 3, 7, 7}));
  BOOST_TEST(count_of<MaxPool>(at(64, 64)) == 1);
  BOOST_TEST((layer(at(224, 224), "layer1.0.conv1").output == Shape{64, 56, 56}));
}

BOOST_AUTO_TEST_CASE(a_named_stem_is_that_of_any_size) {
  for (const std::string name : {"resnet18", "mini-resnet"}) {
    for (const std::int64_t size : {32, 96}) {
      const ImageShape image{.channels = 3, .height = size, .width = size};
      const Graph large = make_model(name, {.image = image, .stem = Stem::conv7x7});
      const Graph small = make_model(name, {.image = image, .stem = Stem::conv3x3});

      BOOST_TEST((shapes(large).at("conv1.weight") == Shape{64, 3, 7, 7}));
      BOOST_TEST((layer(large, "layer1.0.conv1").output == Shape{64, size / 4, size / 4}));
      BOOST_TEST((shapes(small).at("conv1.weight") == Shape{64, 3, 3, 3}));
      BOOST_TEST((layer(small, "layer1.0.conv1").output == Shape{64, size, size}));
      BOOST_TEST(layer_difference(large, make_model(name, {.stem = Stem::conv7x7})) == "");
    }
  }
}

BOOST_AUTO_TEST_CASE(only_a_stem_that_the_size_decided_is_noted) {
  const auto note = [](const char* name, std::int64_t height, Stem stem) {
    return stem_note(name, {.image = {.channels = 3, .height = height, .width = 64}, .stem = stem});
  };

  BOOST_TEST(note("resnet18", 63, Stem::standard).starts_with("3x3 stem without pooling"));
  BOOST_TEST(note("resnext50_32x4d", 63, Stem::deep).starts_with("deep stem without stride"));
  BOOST_TEST(note("resnet18", 64, Stem::standard) == "");
  BOOST_TEST(note("resnet18", 63, Stem::conv3x3) == "");
  BOOST_TEST(note("resnet18", 63, Stem::conv7x7) == "");
  BOOST_TEST(note("mini-resnet", 63, Stem::standard) == "");
}

BOOST_AUTO_TEST_CASE(a_deep_stem_is_three_3x3_convolutions_with_timms_names) {
  const Graph graph = make_model("resnet50", {.stem = Stem::deep});
  const auto shape = shapes(graph);

  BOOST_TEST((shape.at("conv1.0.weight") == Shape{32, 3, 3, 3}));
  BOOST_TEST((shape.at("conv1.1.weight") == Shape{32}));
  BOOST_TEST((shape.at("conv1.3.weight") == Shape{32, 32, 3, 3}));
  BOOST_TEST((shape.at("conv1.4.bias") == Shape{32}));
  BOOST_TEST((shape.at("conv1.6.weight") == Shape{64, 32, 3, 3}));
  BOOST_TEST((shape.at("bn1.weight") == Shape{64}));
  BOOST_TEST((layer(graph, "conv1.6").output == Shape{64, 112, 112}));
  BOOST_TEST((layer(graph, "layer1.0.conv1").output == Shape{64, 56, 56}));
  const Graph small = make_model("mini-resnet", {.image = cifar, .width = 8, .stem = Stem::deep});
  BOOST_TEST((shapes(small).at("conv1.3.weight") == Shape{4, 4, 3, 3}));
  BOOST_TEST((layer(small, "layer1.0.conv1").output == Shape{8, 32, 32}));
}

BOOST_AUTO_TEST_CASE(an_avgpool_shortcut_halves_the_image_before_its_convolution) {
  const Graph graph = make_model("resnet50", {.shortcut = Shortcut::avgpool});
  const auto shape = shapes(graph);

  // timm's names, also where the image stays as it is.
  BOOST_TEST((shape.at("layer1.0.downsample.1.weight") == Shape{256, 64, 1, 1}));
  BOOST_TEST((shape.at("layer1.0.downsample.2.weight") == Shape{256}));
  BOOST_TEST((shape.at("layer2.0.downsample.1.weight") == Shape{512, 256, 1, 1}));
  BOOST_TEST(!shape.contains("layer2.0.downsample.0.weight"));
  BOOST_TEST(count_of<AvgPool>(graph) == 3);
  const auto& convolution = std::get<Conv2d>(layer(graph, "layer2.0.downsample.1").op);
  BOOST_TEST(convolution.options.stride == 1);
  // timm's resnet50d.
  BOOST_TEST(make_model("resnet50", {.stem = Stem::deep, .shortcut = Shortcut::avgpool})
                 .parameter_count() == 25'576'264);
  // An odd extent is rounded up, as by the 3x3 convolution beside it.
  const Graph odd =
      make_model("resnet18", {.image = {.height = 33, .width = 35}, .shortcut = Shortcut::avgpool});
  BOOST_TEST((layer(odd, "layer2.0.downsample.1").output == Shape{128, 17, 18}));
}

BOOST_AUTO_TEST_CASE(stem_and_shortcut_belong_to_a_models_identity) {
  const auto print = [](Stem stem, Shortcut shortcut) {
    return make_model("mini-resnet", {.image = cifar, .stem = stem, .shortcut = shortcut})
        .fingerprint();
  };

  const std::uint32_t usual = print(Stem::standard, Shortcut::convolution);
  BOOST_TEST(print(Stem::deep, Shortcut::convolution) != usual);
  BOOST_TEST(print(Stem::standard, Shortcut::avgpool) != usual);
}

// Checkpoints hold these numbers: a change makes resuming fail.
BOOST_AUTO_TEST_CASE(fingerprints_stay_those_of_earlier_releases) {
  const auto print = [](const char* name, const ImageShape& image) {
    return make_model(name, {.image = image}).fingerprint();
  };
  const ImageShape large = ModelOptions{}.image;

  BOOST_TEST(print("mini-resnet", cifar) == 0x55b4e4e9u);
  BOOST_TEST(print("resnet18", cifar) == 0x032dafb4u);
  BOOST_TEST(print("resnet18", large) == 0x69242f75u);
  BOOST_TEST(print("resnet50", large) == 0xeb6563bfu);
  BOOST_TEST(print("simple-cnn", cifar) == 0x53673ec5u);
  BOOST_TEST(print("mlp", cifar) == 0x0469e86au);
}

BOOST_AUTO_TEST_CASE(stochastic_depth_grows_from_the_first_block_to_the_last) {
  const auto probabilities = [](const char* name) {
    return drop_probabilities(make_model(name, {.image = cifar, .stochastic_depth = 0.3}));
  };

  const std::vector<float> mini = probabilities("mini-resnet");
  BOOST_REQUIRE(mini.size() == 6U);
  for (std::size_t block = 0; block < 6; ++block) {
    BOOST_TEST(mini[block] == static_cast<float>(0.3 * static_cast<double>(block) / 5),
               boost::test_tools::tolerance(1e-6F));
  }
  BOOST_TEST(probabilities("resnet18").size() == 8U);
  BOOST_TEST(probabilities("resnet152").size() == 50U);
  BOOST_TEST(probabilities("resnet152").back() == 0.3F);
  BOOST_TEST(drop_probabilities(make_model("resnet50", {})).empty());
}

BOOST_AUTO_TEST_CASE(blocks_and_stages_are_torchvisions_and_stochastic_depth_drops_blocks) {
  for (const std::string_view name : model_names()) {
    if (name == "mini-vit" || name.starts_with("vit_")) continue;  // the next test
    const bool residual = name != "mlp" && name != "simple-cnn";
    const Graph graph =
        make_model(name, {.image = cifar, .stochastic_depth = residual ? 0.3 : 0.0});
    std::map<int, std::string> blocks;  // "layer1.0", from the names of its parameters
    std::map<int, std::string> stages;  // "layer1"
    for (const Node& node : graph.nodes()) {
      for (const ParameterId id : node.parameters) {
        const std::string& parameter = graph.parameters()[static_cast<std::size_t>(id)].name;
        const bool in_layer = parameter.starts_with("layer");
        BOOST_TEST((node.block >= 0) == in_layer, name << " " << parameter);
        if (!in_layer) continue;
        const std::size_t dot = parameter.find('.');
        const std::string stage = parameter.substr(0, dot);
        const std::string block = parameter.substr(0, parameter.find('.', dot + 1));
        BOOST_TEST(stages.try_emplace(node.stage, stage).first->second == stage);
        BOOST_TEST(blocks.try_emplace(node.block, block).first->second == block);
      }
      const auto* norm = std::get_if<BatchNorm>(&node.op);
      if (norm == nullptr || norm->options.drop.probability == 0) continue;
      BOOST_TEST(norm->options.drop.block == node.block, name);
    }
    BOOST_TEST(stages.size() == (!residual ? 0U : name == "mini-resnet" ? 3U : 4U), name);
    BOOST_TEST(blocks.size() == drop_probabilities(graph).size(), name);
  }
}

BOOST_AUTO_TEST_CASE(blocks_of_a_vision_transformer_are_its_encoders_layers) {
  const Graph graph = make_model("mini-vit", {.image = cifar});
  std::map<int, std::string> blocks;
  std::set<int> stages;
  for (const Node& node : graph.nodes()) {
    if (!node.parameters.empty()) stages.insert(node.stage);
    for (const ParameterId id : node.parameters) {
      const std::string& parameter = graph.parameters()[static_cast<std::size_t>(id)].name;
      const bool in_layer = parameter.starts_with("encoder.layers.");
      BOOST_TEST((node.block >= 0) == in_layer, parameter);
      if (!in_layer) continue;
      const std::string block = parameter.substr(0, parameter.find('.', sizeof("encoder.layers.")));
      BOOST_TEST(blocks.try_emplace(node.block, block).first->second == block);
    }
  }
  BOOST_TEST(blocks.size() == 6U);
  BOOST_TEST((stages == std::set<int>{-1, 0, 1}));  // none: the head's
}

BOOST_AUTO_TEST_CASE(a_vision_transformer_has_patches_heads_and_a_width) {
  const Graph graph = make_model("vit_b_16", {});
  BOOST_TEST((layer(graph, "conv_proj").output == Shape{768, 14, 14}));
  // The numbers that torchvision publishes: its operations are multiply-adds.
  BOOST_TEST(graph.parameter_count() == 86567656);
  BOOST_TEST(static_cast<double>(summarize_model(graph).multiply_adds) == 17.56e9,
             boost::test_tools::tolerance(0.01));
  const auto narrow = shapes(make_model("mini-vit", {.image = cifar, .width = 16}));
  BOOST_TEST((narrow.at("encoder.pos_embedding") == Shape{1, 65, 16}));
  BOOST_TEST((narrow.at("encoder.layers.encoder_layer_5.mlp.0.weight") == Shape{32, 16}));
  BOOST_TEST(test::refusal([] {
               static_cast<void>(make_model("mini-vit", {.image = cifar, .width = 18}));
             }).find("its 4 heads divide the width") != std::string::npos);
  BOOST_TEST(test::refusal([] {
               static_cast<void>(make_model("vit_h_14", {.image = cifar}));
             }).find("patches of 14x14") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(mini_resnet_has_three_stages_of_two_basic_blocks) {
  const Graph graph = make_model("mini-resnet", {.image = cifar, .classes = 10, .width = 16});
  const auto shape = shapes(graph);

  BOOST_TEST((shape.at("conv1.weight") == Shape{16, 3, 3, 3}));
  BOOST_TEST((shape.at("layer3.1.conv2.weight") == Shape{64, 64, 3, 3}));
  BOOST_TEST((shape.at("layer2.0.downsample.0.weight") == Shape{32, 16, 1, 1}));
  BOOST_TEST((shape.at("fc.weight") == Shape{10, 64}));
  BOOST_TEST(!shape.contains("layer1.0.downsample.0.weight"));
  BOOST_TEST(!shape.contains("layer1.2.conv1.weight"));
  BOOST_TEST(!shape.contains("layer4.0.conv1.weight"));
  BOOST_TEST((layer(graph, "layer1.1.conv2").output == Shape{16, 32, 32}));
  BOOST_TEST((layer(graph, "layer2.0.conv1").output == Shape{32, 16, 16}));
  BOOST_TEST((layer(graph, "layer3.0.conv1").output == Shape{64, 8, 8}));
}

BOOST_AUTO_TEST_CASE(mini_resnet_starts_64_wide) {
  const auto shape = shapes(make_model("mini-resnet", {.image = cifar}));

  BOOST_TEST((shape.at("conv1.weight") == Shape{64, 3, 3, 3}));
  BOOST_TEST((shape.at("layer3.1.conv2.weight") == Shape{256, 256, 3, 3}));
}

BOOST_AUTO_TEST_CASE(simple_cnn_is_two_convolutions_and_two_linear_layers) {
  const Graph graph = make_model(
      "simple-cnn", {.image = {.channels = 1, .height = 28, .width = 28}, .classes = 10});
  const auto shape = shapes(graph);

  BOOST_TEST((names(graph) == std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight",
                                                       "conv2.bias", "fc1.weight", "fc1.bias",
                                                       "fc2.weight", "fc2.bias"}));
  BOOST_TEST((shape.at("conv1.weight") == Shape{32, 1, 3, 3}));
  BOOST_TEST((shape.at("conv2.weight") == Shape{64, 32, 3, 3}));
  BOOST_TEST((shape.at("fc1.weight") == Shape{512, 64 * 7 * 7}));
  BOOST_TEST((shape.at("fc2.weight") == Shape{10, 512}));
  const auto narrow = shapes(make_model("simple-cnn", {.image = cifar, .width = 8}));
  BOOST_TEST((narrow.at("conv1.weight") == Shape{8, 3, 3, 3}));
  BOOST_TEST((narrow.at("conv2.weight") == Shape{16, 8, 3, 3}));
  BOOST_TEST((narrow.at("fc1.weight") == Shape{128, 16 * 8 * 8}));
  BOOST_TEST(count_of<Relu>(graph) == 3);
}

BOOST_AUTO_TEST_CASE(mlp_has_two_hidden_layers_of_the_width) {
  const auto own = shapes(make_model("mlp", {.image = cifar, .classes = 10}));
  const auto narrow = shapes(make_model("mlp", {.image = cifar, .classes = 10, .width = 20}));

  BOOST_TEST((own.at("fc1.weight") == Shape{512, 3072}));
  BOOST_TEST((own.at("fc2.weight") == Shape{512, 512}));
  BOOST_TEST((own.at("fc3.weight") == Shape{10, 512}));
  BOOST_TEST((narrow.at("fc2.weight") == Shape{20, 20}));
}

BOOST_AUTO_TEST_CASE(zero_init_residual_zeroes_the_last_norm_of_each_block) {
  const auto zeroed = [](const char* name, bool zero) {
    std::vector<std::string> result;
    const Graph graph = make_model(name, {.image = cifar, .zero_init_residual = zero});
    for (const Parameter& parameter : graph.parameters()) {
      if (parameter.initialization == Initialization::zeros &&
          parameter.name.ends_with(".weight")) {
        result.push_back(parameter.name);
      }
    }
    return result;
  };

  BOOST_TEST((zeroed("mini-resnet", true) ==
              std::vector<std::string>{"layer1.0.bn2.weight", "layer1.1.bn2.weight",
                                       "layer2.0.bn2.weight", "layer2.1.bn2.weight",
                                       "layer3.0.bn2.weight", "layer3.1.bn2.weight"}));
  BOOST_TEST(zeroed("resnet50", true).size() == 16u);
  BOOST_TEST(zeroed("resnet50", true).back() == "layer4.2.bn3.weight");
  BOOST_TEST(zeroed("resnet50", false).empty());
}

BOOST_AUTO_TEST_CASE(an_unknown_model_is_refused_with_the_nearest_and_all_names) {
  for (const auto& [wrong, nearest] : {std::pair{"resnet5O", "resnet50"},
                                       {"resnet-18", "resnet18"},
                                       {"cnn", "mlp"},
                                       {"simplecnn", "simple-cnn"},
                                       {"miniresnet", "mini-resnet"}}) {
    const std::string message = test::refusal([&] { (void)make_model(wrong, {}); });

    BOOST_TEST(message.find(std::string("did you mean ") + nearest) != std::string::npos, message);
    BOOST_TEST(message.find(std::string("'") + wrong) != std::string::npos);
    for (const std::string_view name : model_names()) {
      BOOST_TEST(message.find(name) != std::string::npos);
    }
  }
}

BOOST_AUTO_TEST_CASE(unsupported_widths_and_images_are_refused) {
  const auto message = [](const char* name, const ModelOptions& options) {
    return test::refusal([&] { (void)make_model(name, options); });
  };

  BOOST_TEST(message("mini-resnet", {.image = cifar, .width = -1}).find("-1") != std::string::npos);
  BOOST_TEST(message("resnext50_32x4d", {.image = cifar, .width = 24}).find("a multiple of 16") !=
             std::string::npos);
  BOOST_TEST(
      message("resnet18", {.image = cifar, .width = 7, .stem = Stem::deep}).find("an even width") !=
      std::string::npos);
  BOOST_TEST(message("simple-cnn", {.image = {.channels = 1, .height = 3, .width = 3}})
                 .find("larger images") != std::string::npos);
  BOOST_TEST(message("resnet18", {.image = {.channels = 1, .height = 1, .width = 1}}) ==
             "nothing was refused");
}

BOOST_AUTO_TEST_CASE(options_of_resnets_are_refused_without_residual_blocks) {
  for (const std::string name : {"simple-cnn", "mlp", "mini-vit", "vit_b_16"}) {
    for (const auto& [option, options] :
         {std::pair{"--zero-init-residual",
                    ModelOptions{.image = cifar, .zero_init_residual = true}},
          {"--stem deep", ModelOptions{.image = cifar, .stem = Stem::deep}},
          {"--stem 7x7", ModelOptions{.image = cifar, .stem = Stem::conv7x7}},
          {"--stem 3x3", ModelOptions{.image = cifar, .stem = Stem::conv3x3}},
          {"--shortcut avgpool", ModelOptions{.image = cifar, .shortcut = Shortcut::avgpool}},
          {"--stochastic-depth", ModelOptions{.image = cifar, .stochastic_depth = 0.1}}}) {
      const std::string message = test::refusal([&] { (void)make_model(name, options); });

      BOOST_TEST(message.find(option + std::string(" does not go with --model ") + name) !=
                 std::string::npos);
    }
  }
}
