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

/// The exchange of an engine that holds all units, so that the engine calls only `await`.
class Exchange final : public UnitExchange {
 public:
  void start_gather(std::size_t, std::span<std::byte>) override {}
  void await_gather(std::size_t) override {}
  void start_reduction(std::size_t, std::span<const float>) override {}
  void await_reduction(std::size_t) override {}
  void progress() override {}
  void await(FunctionRef<bool()> reached) override {
    if (peer_is_lost) fail(ExitStatus::internal, "rank 1 was lost");
    while (!reached()) ++polls;
  }
  bool peer_is_lost = false;
  int polls = 0;
};

struct Fixture {
  std::shared_ptr<Device> device = make_host_device(HostWork::late, HostMemoryGuard::on);
  // A program waits at its end for work that reads these.
  Exchange exchange;
  AlignedBuffer<float> images{2 * 4 * 4 * 3};
  AlignedBuffer<std::int32_t> labels{2};
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Program> program;

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

BOOST_FIXTURE_TEST_CASE(waiting_for_metrics_polls_the_exchange, Fixture) {
  program->forward(batch());
  const BatchMetrics metrics = program->metrics();

  BOOST_TEST(metrics.samples == 2);
  BOOST_TEST(exchange.polls > 0);
}

BOOST_FIXTURE_TEST_CASE(a_lost_rank_ends_the_wait, Fixture) {
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

BOOST_AUTO_TEST_CASE(norms_add_up_the_gradients_of_their_consumers) {
  // The input of each residual block has two consumers. In mini-resnet, norms produce all these
  // inputs. In resnet18, the pooling produces the first one, so its two gradients are added by a
  // separate step.
  BOOST_TEST(std::ranges::count(steps_of("mini-resnet"), "sum of gradients", &StepTime::name) == 0);
  BOOST_TEST(std::ranges::count(steps_of("resnet18"), "sum of gradients", &StepTime::name) == 1);
}

BOOST_AUTO_TEST_CASE(a_norm_that_is_added_to_another_norm_is_fused_with_it) {
  const auto steps = steps_of("resnet18");
  const auto count = [&](std::string_view prefix) {
    return std::ranges::count_if(steps,
                                 [&](const StepTime& s) { return s.name.starts_with(prefix); });
  };
  // Three of the 20 norms are in shortcuts.
  BOOST_TEST(count("statistics of ") == 20);
  BOOST_TEST(count("batch norm ") == 17);
  BOOST_TEST(count("parameter gradients of batch norm ") == 17);
  BOOST_TEST(count("gradient of batch norm ") == 17);
}
