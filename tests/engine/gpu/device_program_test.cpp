#include "../../../src/engine/gpu/device_engine.hpp"
#include "engine/copying_exchange.hpp"
#include "engine/gpu/host_device.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/loss_options.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// The exchange of an engine that holds all units, so that the engine calls only `await`.
class Exchange final : public UnitExchange {
 public:
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
    Graph graph("linear", {3, 4, 4});
    graph.softmax_cross_entropy(
        graph.linear(graph.flatten(graph.input()), {.name = "fc", .out_features = 5}), {});
    engine = make_device_engine(device, graph, {.units = {.rule = {.unit_of = {0, 0}}}});
    program = engine->compile_training(2, &exchange);
    std::ranges::fill(images.span(), 0.5F);
    std::ranges::fill(labels.span(), 1);
  }
  [[nodiscard]] Batch batch() {
    return {.values = images.data(), .targets = {.labels = labels.data()}, .size = 2, .pixels = {}};
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(waiting_for_metrics_polls_the_exchange, Fixture) {
  program->forward(batch());
  const BatchMetrics metrics = program->metrics();

  BOOST_TEST(metrics.samples == 2);
  BOOST_TEST(exchange.polls > 0);
}

BOOST_FIXTURE_TEST_CASE(a_program_polls_the_exchange_for_a_forward_that_nobody_uses, Fixture) {
  program->forward(batch());
  program.reset();
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
      {.values = images.data(), .targets = {.labels = labels.data()}, .size = 1, .pixels = {}});
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

namespace {

/// By default in fp16, in which the host's convolutions write weight gradients in 16 bits.
struct Network {
  struct Options {
    Precision precision = Precision::fp16;
    HostWork when = HostWork::at_once;
    bool records = false;
  };
  Graph graph;
  std::shared_ptr<Device> device;
  std::unique_ptr<Engine> engine;
  AlignedBuffer<float> images;
  AlignedBuffer<std::int32_t> labels{2};

  explicit Network(Graph of) : Network(std::move(of), Options{}) {}
  Network(Graph of, const Options& options)
      : graph(std::move(of)),
        device(make_host_device(options.when, options.when == HostWork::late
                                                  ? HostMemoryGuard::on
                                                  : HostMemoryGuard::off)),
        engine(make_device_engine(device, graph,
                                  {.precision = options.precision, .records = options.records})),
        images(static_cast<std::size_t>(2 * graph.input_shape().elements())) {
    float at = 0;
    const auto fill = [&](std::span<float> values, float scale) {
      for (float& value : values) value = scale * std::sin(at += 1);
    };
    fill(images.span(), 1);
    std::vector<float> arena(engine->layout().size());
    for (const ArenaView& view : engine->layout().views) {
      const Shape& shape = graph.parameters()[static_cast<std::size_t>(view.parameter)].shape;
      std::vector<float> plain(static_cast<std::size_t>(shape.elements()));
      fill(plain, 0.5F);
      engine->from_plain(plain, view.parameter, view.in(std::span(arena)));
    }
    engine->memory().write(arena, engine->parameters());
    labels.span()[0] = 1;
    labels.span()[1] = 3;
  }
  [[nodiscard]] Batch batch() const {
    return {.values = images.data(), .targets = {.labels = labels.data()}, .size = 2, .pixels = {}};
  }
  [[nodiscard]] std::unique_ptr<Program> compile(const std::vector<std::size_t>& bucket_ends) {
    return engine->compile({.batch_size = 2, .training = true, .bucket_ends = bucket_ends});
  }
  /// Ends of buckets of `count` tensors each.
  [[nodiscard]] std::vector<std::size_t> ends(std::size_t count) const {
    std::vector<std::size_t> result;
    const auto& views = engine->layout().views;
    for (std::size_t i = count; i < views.size(); i += count) result.push_back(views[i].offset);
    result.push_back(engine->layout().size());
    return result;
  }
  [[nodiscard]] std::vector<float> gradients() const {
    std::vector<float> values(engine->layout().size());
    engine->memory().read(engine->gradients().first(values.size()), values);
    return values;
  }
};

Graph small_model(const char* name, std::int64_t side) {
  return make_model(
      name, {.image = {.channels = 3, .height = side, .width = side}, .classes = 5, .width = 8});
}

constexpr std::string_view conversion = "weight gradients in fp32";

}  // namespace

namespace {

/// Names of steps.
class Names final : public StepTimer {
 public:
  [[nodiscard]] bool wants() const noexcept override { return true; }
  void took(std::string_view step, std::int64_t /*begin*/, std::int64_t /*end*/) override {
    names.emplace_back(step);
  }
  std::vector<std::string> names;
};

/// Of backward, with the starts of its reductions.
std::vector<std::string> steps_of_backward(Network& network, std::size_t tensors_in_a_bucket) {
  static Names timer;  // outlives the engines
  network.engine->set_step_timer(timer);
  timer.names.clear();
  CopyingExchange exchange(*network.engine, tensors_in_a_bucket);
  const auto program = exchange.compile_training(2);
  program->forward(network.batch());
  program->backward({.reduces = true});
  network.engine->report_steps();
  BOOST_TEST(exchange.started_all());
  timer.names.erase(timer.names.begin(), std::ranges::find(timer.names, "gradient of the loss"));
  return timer.names;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_weight_gradients_of_a_bucket_are_converted_at_its_end) {
  Network network(small_model("mini-resnet", 16));
  Network plain(small_model("mini-resnet", 16), {.precision = Precision::fp32});
  // Buckets end after weights as well as after vectors.
  for (const std::size_t stride : {1, 5, 9, 1000}) {
    const std::vector<std::string> found = steps_of_backward(network, stride);

    std::vector<std::string> others;
    std::ranges::remove_copy(found, std::back_inserter(others), conversion);
    BOOST_TEST((others == steps_of_backward(plain, stride)));
    BOOST_TEST(std::ranges::count(found, conversion) > 0);
    // Between it and the reduction, at most the rest of the op that completes the bucket.
    for (auto step = found.begin(); step != found.end(); ++step) {
      if (*step != conversion) continue;
      const auto start = std::find(step, found.end(), "start of a reduction");
      BOOST_TEST((start - step <= 2));
      BOOST_TEST((start != found.end()));
    }
  }
}

namespace {

/// With a first convolution that reads gathered columns, groups, unpadded and padded channels.
Graph network_of_all_convolutions() {
  Graph graph("convolutions", {3, 12, 12});
  const auto norm = [&](ValueId x, const char* name) {
    return graph.batch_norm(x, {.name = name});
  };
  ValueId x = graph.conv2d(
      graph.input(), {.name = "stem", .out_channels = 16, .kernel = 7, .stride = 2, .padding = 3});
  x = graph.relu(norm(x, "stem.bn"));
  ValueId y = graph.conv2d(
      x, {.name = "grouped", .out_channels = 16, .kernel = 3, .padding = 1, .groups = 4});
  y = graph.relu(norm(y, "grouped.bn"));
  y = norm(graph.conv2d(y, {.name = "wide", .out_channels = 21, .kernel = 1}), "wide.bn");
  x = norm(graph.conv2d(x, {.name = "shortcut", .out_channels = 21, .kernel = 1}), "shortcut.bn");
  x = graph.flatten(graph.global_avg_pool(graph.relu(graph.add(y, x))));
  graph.softmax_cross_entropy(graph.linear(x, {.name = "fc", .out_features = 5}), {});
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_CASE(buckets_do_not_change_the_bits_of_gradients) {
  struct Case {
    bool records;
    bool frozen;
  };
  for (const Case& c : {Case{true, false}, Case{false, false}, Case{true, true}}) {
    Graph graph = network_of_all_convolutions();
    for (std::size_t id = 0; c.frozen && id < graph.parameters().size(); id += 4) {
      graph.set_lr_scale(static_cast<ParameterId>(id), 0);
    }
    Network network(std::move(graph), {.when = HostWork::late, .records = c.records});
    // Of one and of two micro-steps, repeated so that recordings are made and replayed.
    const auto run = [&](std::size_t tensors_in_a_bucket) {
      CopyingExchange exchange(*network.engine, tensors_in_a_bucket);
      const auto program = exchange.compile_training(2);
      std::vector<std::vector<float>> found;
      for (int repeat = 0; repeat < 3; ++repeat) {
        for (const bool accumulate : {false, true}) {
          program->forward(network.batch());
          program->backward({.loss_scale = 8, .accumulate = accumulate, .reduces = true});
          found.push_back(network.gradients());
          BOOST_TEST((exchange.copy == found.back()));
        }
      }
      return found;
    };

    const auto expected = run(1);  // each gradient is converted on its own
    std::vector<float> twice = expected[0];
    for (float& value : twice) value *= 2;
    BOOST_TEST((expected[1] != expected[0]));
    BOOST_TEST((expected[1] == twice));
    BOOST_TEST((expected[4] == expected[0]));
    BOOST_TEST((expected[5] == expected[1]));
    for (const std::size_t count : {3, 11, 1000}) BOOST_TEST((run(count) == expected));
  }
}

BOOST_AUTO_TEST_CASE(the_memory_plan_keeps_the_weight_gradients_of_a_bucket) {
  Graph graph("mlp", {8, 1, 1});
  ValueId x = graph.flatten(graph.input());
  for (const char* name : {"a", "b", "c"}) {
    x = graph.relu(graph.linear(x, {.name = name, .out_features = name[0] == 'c' ? 8 : 1024}));
  }
  graph.softmax_cross_entropy(x, {});
  Network network(std::move(graph));
  constexpr std::size_t largest = 1024 * 1024 * 2;
  constexpr std::size_t other = 1024 * 8 * 2;

  const auto bytes = [&](std::size_t tensors_in_a_bucket) {
    return network.compile(network.ends(tensors_in_a_bucket))->activation_bytes();
  };

  BOOST_TEST(bytes(1) < largest + other);
  BOOST_TEST(bytes(1000) >= largest + 2 * other);
}

namespace {

/// Gradients of steps with different loss scales, each of two micro-steps, the second with another
/// scale. `reads` waits for the first, so no queued backward could take the second's scale.
std::vector<std::vector<float>> gradients_by_scale(Network& network, bool reads) {
  const auto program = network.compile(network.ends(3));
  std::vector<std::vector<float>> found;
  for (const float scale : {8.0F, 8.0F, 4.0F, 4.0F, 0.25F, 8.0F}) {
    program->forward(network.batch());
    program->backward({.loss_scale = scale, .accumulate = false});
    if (reads) (void)network.gradients();
    program->backward({.loss_scale = 3 * scale, .accumulate = true});
    found.push_back(network.gradients());
  }
  return found;
}

Graph linear_with(std::string_view loss) {
  Graph graph("linear", {3, 4, 4});
  const ValueId logits =
      graph.linear(graph.flatten(graph.input()), {.name = "fc", .out_features = 5});
  graph.append(make_loss(loss, logits, {}));
  return graph;
}

}  // namespace

BOOST_AUTO_TEST_CASE(one_recording_serves_every_loss_scale) {
  for (const LossOption& loss : loss_options) {
    Network singly(linear_with(loss.name), {.when = HostWork::late});
    Network recorded(linear_with(loss.name), {.when = HostWork::late, .records = true});

    const auto expected = gradients_by_scale(singly, true);
    BOOST_TEST((gradients_by_scale(recorded, false) == expected));
    BOOST_TEST((expected[0] == expected[1]));
    BOOST_TEST((expected[0] != expected[2]));
    // Forward, and backward of the first and of the second micro-step.
    BOOST_TEST(recordings(*recorded.device) == 3U);
    BOOST_TEST(recordings(*singly.device) == 0U);
  }
}
