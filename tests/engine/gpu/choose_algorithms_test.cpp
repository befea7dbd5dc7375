#include "../../../src/engine/gpu/choose_algorithms.hpp"

#include "../../../src/engine/gpu/device_engine.hpp"
#include "engine/gpu/host_device.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// A first convolution of images, two convolutions of one shape, one of another shape, and one with
/// groups.
Graph network(std::int64_t stem_stride = 1) {
  Graph graph("few shapes", {3, 8, 8});
  ValueId x = graph.conv2d(
      graph.input(),
      {.name = "stem", .out_channels = 12, .kernel = 3, .stride = stem_stride, .padding = 1});
  for (const char* name : {"one", "two"}) {
    x = graph.conv2d(x, {.name = name, .out_channels = 12, .kernel = 3, .padding = 1});
  }
  x = graph.conv2d(x, {.name = "half", .out_channels = 24, .kernel = 1, .stride = 2});
  x = graph.conv2d(x, {.name = "grouped", .out_channels = 16, .kernel = 1, .groups = 8});
  x = graph.linear(graph.flatten(graph.global_avg_pool(x)), {.name = "fc", .out_features = 5});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

struct MapCache final : AlgorithmCache {
  std::map<std::string, std::string> entries;
  [[nodiscard]] std::optional<std::string> find(const std::string& key) override {
    const auto found = entries.find(key);
    return found == entries.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const std::string& key, const std::string& algorithm) override {
    BOOST_TEST(entries.emplace(key, algorithm).second);
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(requests_are_those_of_a_training_program) {
  // Strided: over gathered columns, except in fp32.
  for (const auto& [precision, stem_stride] : {std::pair{Precision::fp32, 1},
                                               {Precision::fp32, 2},
                                               {Precision::tf32, 1},
                                               {Precision::tf32, 2},
                                               {Precision::bf16, 1},
                                               {Precision::bf16, 2},
                                               {Precision::fp16, 2}}) {
    const std::shared_ptr<Device> device = make_host_device();
    const auto engine = make_device_engine(device, network(stem_stride), {.precision = precision});
    const auto program = engine->compile_training(6);
    std::vector<ConvolutionRequest> asked;
    for (const auto& [shape, passes] : convolutions(*device).made) {
      for (const auto& [is_made, pass] :
           {std::pair{passes.forward, ConvolutionPass::forward},
            std::pair{passes.backward_data, ConvolutionPass::backward_data},
            std::pair{passes.backward_weights, ConvolutionPass::backward_weights}}) {
        if (!is_made) continue;
        const ConvolutionRequest request{.shape = shape, .pass = pass};
        if (std::ranges::find(asked, request) == asked.end()) asked.push_back(request);
      }
    }

    const std::vector<ConvolutionRequest> requests =
        requests_of(network(stem_stride), precision, 6);

    BOOST_TEST(requests.size() == 14U);
    BOOST_TEST((requests[0].shape.kernel_width == 1) == (stem_stride == 2));
    BOOST_TEST((requests == asked));
    // The linear layer's.
    const bool is_16_bit = precision == Precision::bf16 || precision == Precision::fp16;
    BOOST_TEST(requests[11].shape.tf32 == (is_16_bit || precision == Precision::tf32));
    BOOST_TEST((requests[12].shape.type == storage_of(precision)));
    std::set<std::string> texts;
    for (const ConvolutionRequest& request : requests) texts.insert(request.text());
    BOOST_TEST(texts.size() == requests.size());
  }
}

BOOST_AUTO_TEST_CASE(the_text_of_a_request_contains_all_its_properties) {
  ConvolutionRequest request{.shape = {.batch = 256,
                                       .height = 56,
                                       .width = 28,
                                       .in_channels = 64,
                                       .out_channels = 128,
                                       .kernel = 3,
                                       .stride = 2,
                                       .padding = 1,
                                       .type = DataType::bf16},
                             .pass = ConvolutionPass::backward_weights};
  BOOST_TEST(request.text() ==
             "bf16 weight gradient of 256x56x28x64 to 128, kernel 3, stride 2, padding 1");
  // Two operations per product at 28 x 14 positions.
  BOOST_TEST(request.operations() == 2.0 * 256 * 28 * 14 * 64 * 128 * 9);
  request.shape.type = DataType::f32;
  request.shape.tf32 = true;
  request.pass = ConvolutionPass::forward;
  BOOST_TEST(request.text() ==
             "tf32 forward of 256x56x28x64 to 128, kernel 3, stride 2, padding 1");
}

BOOST_AUTO_TEST_CASE(the_text_of_a_request_contains_its_groups) {
  ConvolutionRequest request{.shape = {.batch = 2,
                                       .height = 4,
                                       .width = 4,
                                       .in_channels = 64,
                                       .out_channels = 128,
                                       .groups = 32}};
  BOOST_TEST(request.text() ==
             "fp32 forward of 2x4x4x64 to 128, kernel 1, stride 1, padding 0, 32 groups");
  BOOST_TEST(request.operations() == 2.0 * 2 * 4 * 4 * 2 * 128);
}

BOOST_AUTO_TEST_CASE(groups_that_padding_would_mix_are_refused) {
  Graph graph("groups of padded channels", {8, 4, 4});
  graph.conv2d(0, {.name = "mixed", .out_channels = 20, .kernel = 1, .groups = 4});

  BOOST_CHECK_EXCEPTION((void)requests_of(graph, Precision::fp32, 2), Error, [](const Error& e) {
    const std::string message = e.what();
    return e.status() == ExitStatus::usage && message.find("mixed: 4 groups") == 0 &&
           message.find("multiples of 8") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(each_request_is_timed_once) {
  MapCache cache;
  const auto first = make_host_device();
  const std::string text = choose_algorithms(*first, network(), Precision::bf16, 6, "", cache);
  const auto second = make_host_device();
  const std::string again = choose_algorithms(*second, network(), Precision::bf16, 6, "", cache);
  const auto larger = make_host_device();
  const std::string other = choose_algorithms(*larger, network(), Precision::bf16, 7, "", cache);

  BOOST_TEST(convolutions(*first).timed.size() == 14U);
  BOOST_TEST(convolutions(*second).timed.empty());
  BOOST_TEST(convolutions(*larger).timed.size() == 14U);
  BOOST_TEST(text == again);
  BOOST_TEST(text != other);
  for (const auto& [key, algorithm] : cache.entries) {
    const bool is_of_logits = key.starts_with("the host, loops 1\ttf32 forward of ") &&
                              key.find("x1x1x16 to 8,") != std::string::npos;
    BOOST_TEST((is_of_logits || key.starts_with("the host, loops 1\tbf16 ")));
  }
}

BOOST_AUTO_TEST_CASE(recorded_choices_are_kept) {
  MapCache cache;
  const auto device = make_host_device();
  const std::vector<ConvolutionRequest> requests = requests_of(network(), Precision::fp32, 6);
  const std::string others = "another GPU\t" + requests[1].text() + "\tits own\n";
  const std::string smaller = "the host, loops 1\tfp32 forward of one image\tonce\n";
  const std::string known =
      others + smaller + "the host, loops 1\t" + requests[0].text() + "\tby hand\n";
  const std::string text = choose_algorithms(*device, network(), Precision::fp32, 6, known, cache);
  set_algorithms(*device, text);

  BOOST_TEST(convolutions(*device).timed.size() == requests.size() - 1);
  BOOST_TEST(!cache.entries.contains("the host, loops 1\t" + requests[0].text()));
  const AlgorithmChoices& taken = convolutions(*device).taken;
  BOOST_TEST(taken.size() == requests.size() + 1);
  BOOST_TEST(taken.at(requests[0].text()) == "by hand");
  BOOST_TEST(taken.at(requests[1].text()) == "loop 3");
  BOOST_TEST(text.find(others) != std::string::npos);
  BOOST_TEST(text.find(smaller) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(choices_are_applied_to_other_devices) {
  MapCache cache;
  const auto first = make_host_device();
  const auto other = make_host_device();
  set_algorithms(*other, choose_algorithms(*first, network(), Precision::fp32, 6, "", cache));

  const AlgorithmChoices& taken = convolutions(*other).taken;
  BOOST_TEST(taken.size() == 14U);
  for (const ConvolutionRequest& request : requests_of(network(), Precision::fp32, 6)) {
    BOOST_TEST(taken.at(request.text()) == "loop " + std::to_string(request.shape.kernel));
  }
  set_algorithms(*other, "");
  BOOST_TEST(taken.empty());
}
