#include "../../../src/engine/gpu/device_arena.hpp"

#include "engine/gpu/host_device.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

struct Fixture {
  std::shared_ptr<Device> device = make_host_device();
  Graph graph{"two layers", {3, 8, 8}};

  Fixture() {
    const ValueId x =
        graph.conv2d(graph.input(), {.name = "conv", .out_channels = 8, .kernel = 3, .padding = 1});
    graph.softmax_cross_entropy(
        graph.linear(graph.flatten(graph.relu(x)), {.name = "fc", .out_features = 5}), {});
  }
  [[nodiscard]] ParameterArena make(const UnitOptions& units) const {
    return make_parameter_arena(device, graph, {.tail_size = 40, .units = units});
  }
  /// One unit per parameter.
  [[nodiscard]] UnitRule sharded() const {
    UnitRule rule{.unit_of = {}, .multiple = 64, .vectors_apart = true};
    for (std::size_t i = 0; i < graph.parameters().size(); ++i) {
      rule.unit_of.push_back(static_cast<int>(i));
    }
    return rule;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(gradients_are_in_communication_memory, Fixture) {
  const ParameterArena arena = make({});

  BOOST_TEST(arena.gradients().size() == arena.layout().size() + 40);
  BOOST_TEST(exchanged_bytes(*device) == arena.gradients().size_bytes());
}

BOOST_FIXTURE_TEST_CASE(gathered_parameters_are_in_communication_memory, Fixture) {
  const ParameterArena arena = make({.rule = sharded()});

  BOOST_TEST(exchanged_bytes(*device) ==
             arena.gradients().size_bytes() + arena.parameters().size_bytes());
}

BOOST_FIXTURE_TEST_CASE(parameters_held_in_16_bits_are_in_communication_memory, Fixture) {
  const ParameterArena arena =
      make({.rule = sharded(), .holds_gradients = false, .parameters = Precision::bf16});
  std::size_t held = 0;
  for (std::size_t unit = 0; unit < arena.layout().units.size(); ++unit) {
    held += arena.held_unit(unit).size();
  }

  BOOST_TEST(held > 0U);
  BOOST_TEST(exchanged_bytes(*device) == arena.gradients().size_bytes() + held);
}
