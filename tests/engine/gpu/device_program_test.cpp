#define BOOST_TEST_MODULE device_program
#include "../../../src/engine/gpu/device_engine.hpp"
#include "engine/gpu/host_device.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <memory>
#include <string>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// Of an engine that holds everything, so that only waits come through it.
class Exchange final : public UnitExchange {
 public:
  void start_gather(std::size_t, std::span<std::byte>) override {}
  void await_gather(std::size_t) override {}
  void start_reduction(std::size_t, std::span<const float>) override {}
  void await_reduction(std::size_t) override {}
  void progress() override {}
  void await(FunctionRef<bool()> reached) override {
    if (peer_is_lost) fail(ExitStatus::internal, "rank 1 was lost");
    while (!reached()) ++questions;
  }
  bool peer_is_lost = false;
  int questions = 0;
};

struct Fixture {
  std::shared_ptr<Device> device = make_host_device(HostWork::late);
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Program> program;
  Exchange exchange;
  AlignedBuffer<float> images{2 * 4 * 4 * 3};
  AlignedBuffer<std::int32_t> labels{2};

  Fixture() {
    Graph graph("linear", {.channels = 3, .height = 4, .width = 4}, 5);
    graph.softmax_cross_entropy(
        graph.linear(graph.flatten(graph.input()), {.name = "fc", .out_features = 5}), {});
    engine = make_device_engine(device, graph, {.units = {.rule = {.unit_of = {0, 0}}}});
    program = engine->compile_training(2, &exchange);
    std::ranges::fill(images.span(), 0.5F);
    std::ranges::fill(labels.span(), 1);
  }
  [[nodiscard]] Batch batch() {
    return {.images = images.data(), .labels = labels.data(), .size = 2, .pixels = {}};
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(metrics_are_waited_for_where_other_ranks_are_looked_at, Fixture) {
  program->forward(batch());
  const BatchMetrics metrics = program->metrics();

  BOOST_TEST(metrics.samples == 2);
  BOOST_TEST(exchange.questions > 0);
}

BOOST_FIXTURE_TEST_CASE(a_rank_that_is_lost_ends_the_wait, Fixture) {
  program->forward(batch());
  exchange.peer_is_lost = true;

  BOOST_CHECK_EXCEPTION((void)program->metrics(), Error, [](const Error& error) {
    return std::string(error.what()) == "rank 1 was lost";
  });
}

BOOST_FIXTURE_TEST_CASE(a_sharded_network_does_not_compile_without_an_exchange, Fixture) {
  const auto compile = [&](auto&& make) {
    BOOST_CHECK_EXCEPTION((void)make(), Error, [](const Error& error) {
      return std::string(error.what()).find("without an exchange") != std::string::npos;
    });
  };
  compile([&] { return engine->compile_training(2); });
  compile([&] { return engine->compile_inference(2); });
}

namespace {

std::vector<StepTime> steps_of(const char* model) {
  const Graph graph = make_model(
      model, {.image = {.channels = 3, .height = 64, .width = 64}, .classes = 5, .width = 8});
  const auto engine = make_device_engine(make_host_device(HostWork::at_once), graph, {});
  const AlignedBuffer<float> images(3 * 64 * 64);
  const AlignedBuffer<std::int32_t> labels(1);
  return engine->compile_training(1)->time_steps(
      {.images = images.data(), .labels = labels.data(), .size = 1, .pixels = {}});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_norm_adds_up_what_comes_back_to_it_itself) {
  // Each block's input goes two ways. In mini-resnet all of them come from norms; resnet18's first
  // comes from the pooling, for which the two gradients are added up by a step of its own.
  BOOST_TEST(std::ranges::count(steps_of("mini-resnet"), "sum of gradients", &StepTime::name) == 0);
  BOOST_TEST(std::ranges::count(steps_of("resnet18"), "sum of gradients", &StepTime::name) == 1);
}

BOOST_AUTO_TEST_CASE(a_norm_that_is_added_to_another_is_computed_there) {
  const auto steps = steps_of("resnet18");
  const auto count = [&](std::string_view prefix) {
    return std::ranges::count_if(steps,
                                 [&](const StepTime& s) { return s.name.starts_with(prefix); });
  };
  // Of 20 norms three are of shortcuts.
  BOOST_TEST(count("statistics of ") == 20);
  BOOST_TEST(count("batch norm ") == 17);
  BOOST_TEST(count("parameter gradients of batch norm ") == 17);
  BOOST_TEST(count("gradient of batch norm ") == 17);
}
