#include "conformance/fixtures.hpp"
#include "conformance/harness.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/loss_options.hpp"
#include "lockstep/engine/engine.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

using namespace lockstep;
using namespace lockstep::conformance;

namespace {

/// Two residual blocks, the second with a projection, like those of mini-resnet.
Graph small_network() {
  Graph graph("small", {3, 12, 12});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "conv1", .out_channels = 20, .kernel = 3, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "bn1"}));
  ValueId y = graph.conv2d(x, {.name = "conv2", .out_channels = 20, .kernel = 3, .padding = 1});
  x = graph.relu(graph.add(graph.batch_norm(y, {.name = "bn2"}), x));
  y = graph.conv2d(x,
                   {.name = "conv3", .out_channels = 32, .kernel = 3, .stride = 2, .padding = 1});
  const ValueId down =
      graph.conv2d(x, {.name = "down", .out_channels = 32, .kernel = 1, .stride = 2});
  x = graph.relu(
      graph.add(graph.batch_norm(y, {.name = "bn3"}), graph.batch_norm(down, {.name = "bn4"})));
  x = graph.max_pool(x, {.kernel = 2, .stride = 2});
  x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 7});
  graph.softmax_cross_entropy(x, {.label_smoothing = 0.1});
  return graph;
}

/// A network whose parameters do not depend on the size of images.
Graph pooled_network(std::int64_t height, std::int64_t width) {
  Graph graph("pooled", {3, height, width});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "conv1", .out_channels = 20, .kernel = 3, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "bn1"}));
  const ValueId y =
      graph.conv2d(x, {.name = "conv2", .out_channels = 20, .kernel = 3, .padding = 1});
  x = graph.relu(graph.add(graph.batch_norm(y, {.name = "bn2"}), x));
  x = graph.flatten(graph.global_avg_pool(graph.max_pool(x, {.kernel = 2, .stride = 2})));
  graph.softmax_cross_entropy(graph.linear(x, {.name = "fc", .out_features = 7}), {});
  return graph;
}

struct StepResult {
  double loss;
  std::vector<float> gradients;
  std::vector<float> statistics;
  friend bool operator==(const StepResult&, const StepResult&) = default;
};

StepResult run_step(Engine& engine, Program& program, const Batch& batch) {
  const BatchMetrics metrics = run_forward(program, batch);
  program.backward({.loss_scale = 0.25F, .accumulate = false});
  const auto statistics = program.batch_statistics();
  return {.loss = metrics.loss,
          .gradients = gradients_of(engine),
          .statistics = {statistics.begin(), statistics.end()}};
}

std::vector<float> plain_gradient(Engine& engine, const StepResult& step, ParameterId id) {
  const Shape& shape = engine.graph().parameters()[static_cast<std::size_t>(id)].shape;
  std::vector<float> plain(static_cast<std::size_t>(shape.elements()));
  engine.to_plain(engine.layout().view_of(id).in(std::span<const float>(step.gradients)), id,
                  plain);
  return plain;
}

/// `allowed`: relative to the largest expected value.
void check_close(std::span<const float> found, std::span<const float> expected, double allowed) {
  BOOST_TEST_REQUIRE(found.size() == expected.size());
  double largest = 0;
  double error = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(double{expected[i]}));
    error = std::max(error, std::abs(double{found[i]} - expected[i]));
  }
  BOOST_TEST(error <= allowed * largest);
}

template <typename Body>
void for_each_engine(const Graph& graph, Body&& body) {
  for (const Candidate& candidate : candidates()) {
    BOOST_TEST_CONTEXT(candidate.name) {
      const auto engine = candidate.make(graph);
      load(*engine, oracle::random_state(graph, 3));
      body(*engine);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_same_step_gives_the_same_bits) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 6, 9);
  for (const Candidate& candidate : candidates()) {
    const auto run_afresh = [&] {
      const auto engine = candidate.make(graph);
      load(*engine, oracle::random_state(graph, 3));
      const EngineBatch batch(*engine, problem);
      const auto program = engine->compile_training(6);
      const StepResult first = run_step(*engine, *program, batch.batch());
      for (int repeat = 0; repeat < 5; ++repeat) {
        BOOST_TEST((run_step(*engine, *program, batch.batch()) == first));
      }
      return first;
    };

    BOOST_TEST((run_afresh() == run_afresh()));
  }
}

BOOST_AUTO_TEST_CASE(programs_of_one_engine_are_independent) {
  const Graph graph = small_network();
  const auto few = oracle::random_problem(graph, 3, 1);
  const auto many = oracle::random_problem(graph, 8, 2);
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch few_batch(engine, few);
    const EngineBatch many_batch(engine, many);
    const auto small = engine.compile_training(3);
    const StepResult alone = run_step(engine, *small, few_batch.batch());

    // Larger programs take over the activation memory that the small program was bound to.
    const auto large = engine.compile_training(8);
    const auto inference = engine.compile_inference(5);
    const StepResult large_first = run_step(engine, *large, many_batch.batch());
    inference->forward(many_batch.first(5));
    const StepResult among_others = run_step(engine, *small, few_batch.batch());
    inference->forward(many_batch.first(4));
    const StepResult large_again = run_step(engine, *large, many_batch.batch());

    BOOST_TEST((among_others == alone));
    BOOST_TEST((large_again == large_first));
    BOOST_TEST(large->activation_bytes() > small->activation_bytes());
  });
}

BOOST_AUTO_TEST_CASE(inference_takes_images_of_another_size_with_the_same_parameters) {
  const Graph graph = pooled_network(12, 12);
  const Graph larger = pooled_network(17, 20);
  const auto state = oracle::random_state(graph, 3);
  const auto problem = oracle::random_problem(graph, 4, 1);
  const auto larger_problem = oracle::random_problem(larger, 3, 2);
  const auto expected = oracle::run(larger, state, larger_problem, oracle::Mode::inference);
  for (const Candidate& candidate : candidates()) {
    BOOST_TEST_CONTEXT(candidate.name) {
      const auto engine = candidate.make(graph);
      load(*engine, state);
      const EngineBatch batch(*engine, problem);
      const auto training = engine->compile_training(4);
      const StepResult alone = run_step(*engine, *training, batch.batch());
      const auto other = candidate.make(larger);  // for the format of its images
      const EngineBatch larger_batch(*other, larger_problem);

      const auto program = engine->compile({.batch_size = 3, .graph = &larger});
      const BatchMetrics metrics = run_forward(*program, larger_batch.batch());

      const double allowed = candidate.precision == Precision::fp32 ? 1e-4 : 0.1;
      BOOST_TEST(std::abs(metrics.loss - expected.loss) < allowed * expected.loss);
      BOOST_TEST_REQUIRE(program->logits().size() == expected.logits.size());
      for (std::size_t i = 0; i < expected.logits.size(); ++i) {
        BOOST_TEST(std::abs(double{program->logits()[i]} - expected.logits[i]) < 3 * allowed);
      }
      BOOST_TEST((run_step(*engine, *training, batch.batch()) == alone));
    }
  }
}

BOOST_AUTO_TEST_CASE(training_takes_images_of_another_size_with_the_same_parameters) {
  const Graph graph = pooled_network(12, 12);
  const Graph larger = pooled_network(17, 20);
  const auto state = oracle::random_state(graph, 3);
  const auto problem = oracle::random_problem(larger, 3, 2);
  for (const Candidate& candidate : candidates()) {
    BOOST_TEST_CONTEXT(candidate.name) {
      const auto engine = candidate.make(graph);
      const auto expecting = candidate.make(larger);
      load(*engine, state);
      load(*expecting, state);
      const EngineBatch batch(*expecting, problem);
      const StepResult expected =
          run_step(*expecting, *expecting->compile_training(3), batch.batch());

      const auto program = engine->compile({.batch_size = 3, .training = true, .graph = &larger});
      const StepResult found = run_step(*engine, *program, batch.batch());

      // Formats of parameters, and with them algorithms, may differ.
      const double allowed = candidate.precision == Precision::fp32 ? 1e-4 : 0.1;
      BOOST_TEST(std::abs(found.loss - expected.loss) < allowed * expected.loss);
      check_close(found.statistics, expected.statistics, allowed);
      for (const ArenaView& view : engine->layout().views) {
        check_close(plain_gradient(*engine, found, view.parameter),
                    plain_gradient(*expecting, expected, view.parameter), allowed);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_network_with_other_parameters_is_not_compiled) {
  const Graph graph = small_network();
  Graph other("other", graph.input_shape());
  other.softmax_cross_entropy(
      other.linear(other.flatten(other.input()), {.name = "fc", .out_features = 7}), {});
  for_each_engine(graph, [&](Engine& engine) {
    const auto internal = [](const Error& error) { return error.status() == ExitStatus::internal; };
    BOOST_CHECK_EXCEPTION(static_cast<void>(engine.compile({.batch_size = 2, .graph = &other})),
                          Error, internal);
  });
}

BOOST_AUTO_TEST_CASE(batches_with_and_without_mixing_follow_each_other) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 4, 2);
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch batch(engine, problem);
    const EngineBatch mixed(engine, oracle::mixed(problem, 5));
    const auto program = engine.compile_training(4);
    const StepResult without = run_step(engine, *program, batch.batch());
    const StepResult with = run_step(engine, *program, mixed.batch());

    BOOST_TEST((with.gradients != without.gradients));
    for (int repeat = 0; repeat < 3; ++repeat) {
      BOOST_TEST((run_step(engine, *program, batch.batch()) == without));
      BOOST_TEST((run_step(engine, *program, mixed.batch()) == with));
    }
  });
}

BOOST_AUTO_TEST_CASE(programs_see_changed_parameters_and_statistics) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 4, 2);
  const auto state = oracle::random_state(graph, 77);
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch batch(engine, problem);
    const auto inference = engine.compile_inference(4);
    inference->forward(batch.batch());

    load(engine, state);
    const BatchMetrics metrics = run_forward(*inference, batch.batch());

    const auto expected = oracle::run(graph, state, problem, oracle::Mode::inference);
    BOOST_TEST(std::abs(metrics.loss - expected.loss) < 1e-2 * expected.loss);
  });
}

BOOST_AUTO_TEST_CASE(backward_does_not_read_the_batch_after_metrics) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 4, 2);
  for_each_engine(graph, [&](Engine& engine) {
    const auto program = engine.compile_training(4);
    const EngineBatch kept(engine, problem);
    const StepResult expected = run_step(engine, *program, kept.batch());

    oracle::Problem nan = problem;
    std::fill(nan.images.begin(), nan.images.end(), std::numeric_limits<double>::quiet_NaN());
    auto batch = std::make_unique<EngineBatch>(engine, problem);
    static_cast<void>(run_forward(*program, batch->batch()));
    *batch = EngineBatch(engine, nan);
    program->backward({.loss_scale = 0.25F, .accumulate = false});

    BOOST_TEST((gradients_of(engine) == expected.gradients));
  });
}

BOOST_AUTO_TEST_CASE(a_step_does_not_write_the_tail) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 2, 2);
  for_each_engine(graph, [&](Engine& engine) {
    const std::span<float> tail = engine.gradients().subspan(engine.layout().size());
    BOOST_REQUIRE(tail.size() == 7u);
    const std::vector<float> values(7, 42.0F);
    engine.memory().write(values, tail);
    const EngineBatch batch(engine, problem);
    const auto program = engine.compile_training(2);

    static_cast<void>(run_step(engine, *program, batch.batch()));

    std::vector<float> after(7);
    engine.memory().read(tail, after);
    BOOST_TEST((after == values));
  });
}

BOOST_AUTO_TEST_CASE(the_arena_is_ordered_from_the_last_layer_to_the_first) {
  const Graph graph = small_network();
  for_each_engine(graph, [&](Engine& engine) {
    const auto& views = engine.layout().views;
    BOOST_REQUIRE(views.size() == graph.parameters().size());
    BOOST_TEST(graph.parameters()[static_cast<std::size_t>(views.front().parameter)].name ==
               "fc.weight");
    BOOST_TEST(graph.parameters()[static_cast<std::size_t>(views.back().parameter)].name ==
               "conv1.weight");
    for (std::size_t i = 0; i < views.size(); ++i) {
      const auto& parameter = graph.parameters()[static_cast<std::size_t>(views[i].parameter)];
      BOOST_TEST(views[i].offset % 16 == 0u);
      BOOST_TEST((views[i].kind == parameter.kind));
      BOOST_TEST(views[i].size >= static_cast<std::size_t>(parameter.shape.elements()));
      if (i > 0) BOOST_TEST(views[i].offset >= views[i - 1].end());
    }
    BOOST_TEST(engine.parameters().size() == engine.layout().size());
  });
}

BOOST_AUTO_TEST_CASE(plain_values_are_read_back_exactly_while_the_engine_computes) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 4, 2);
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch batch(engine, problem);
    const auto program = engine.compile_training(4);
    std::vector<float> arena(engine.layout().size(), 5.0F);
    std::size_t wrong = 0;
    std::thread writer([&] {
      for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
        const auto count = static_cast<std::size_t>(graph.parameters()[id].shape.elements());
        std::vector<float> plain(count);
        for (std::size_t i = 0; i < count; ++i) plain[i] = static_cast<float>(i + 1);
        engine.from_plain(
            plain, static_cast<ParameterId>(id),
            engine.layout().view_of(static_cast<ParameterId>(id)).in(std::span<float>(arena)));
        std::vector<float> back(count);
        engine.to_plain(
            engine.layout().view_of(static_cast<ParameterId>(id)).in(std::span<const float>(arena)),
            static_cast<ParameterId>(id), back);
        if (back != plain) ++wrong;
      }
    });
    for (int step = 0; step < 3; ++step) run_step(engine, *program, batch.batch());
    writer.join();

    BOOST_TEST(wrong == 0u);
    // Each view contains its elements, and zeros as padding.
    for (const ArenaView& view : engine.layout().views) {
      const auto begin = arena.begin() + static_cast<std::ptrdiff_t>(view.offset);
      const auto nonzero = std::count_if(begin, begin + static_cast<std::ptrdiff_t>(view.size),
                                         [](float value) { return value != 0.0F; });
      BOOST_TEST(nonzero ==
                 graph.parameters()[static_cast<std::size_t>(view.parameter)].shape.elements());
    }
  });
}

// All operands fit into 16 bits, the results do not.
BOOST_AUTO_TEST_CASE(a_linear_layers_logits_are_not_rounded_to_16_bits) {
  constexpr std::int64_t features = 24;
  constexpr std::int64_t classes = 5;
  Graph graph("linear", {features, 1, 1});
  graph.softmax_cross_entropy(
      graph.linear(graph.flatten(graph.input()), {.name = "fc", .out_features = classes}), {});
  oracle::State state = oracle::random_state(graph, 17);
  oracle::Problem problem = oracle::random_problem(graph, 3, 23);
  const auto to_64ths = [](double& value) {
    value = std::round(std::clamp(value, -1.0, 1.0) * 64) / 64;
  };
  std::ranges::for_each(state.parameters[0], to_64ths);
  std::ranges::for_each(problem.images, to_64ths);
  const oracle::Result exact = oracle::run(graph, state, problem, oracle::Mode::inference);
  for_each_engine(graph, [&](Engine& engine) {
    load(engine, state);
    const EngineBatch batch(engine, problem);
    for (const bool training : {false, true}) {
      const auto program = engine.compile({.batch_size = 3, .training = training});

      static_cast<void>(run_forward(*program, batch.batch()));

      const auto logits = program->logits();
      for (std::size_t i = 0; i < exact.logits.size(); ++i) {
        BOOST_TEST(std::abs(double{logits[i]} - exact.logits[i]) < 1e-5);
      }
    }
  });
}

// The last sample has 0 and -0.
BOOST_AUTO_TEST_CASE(equal_logits_score_as_chance) {
  constexpr std::int64_t classes = 10;
  for (const LossOption& loss : loss_options) {
    Graph graph("logits", {classes, 1, 1});
    const ValueId logits = graph.flatten(graph.input());
    graph.append(make_loss(loss.name, logits, {}));
    oracle::Problem problem{.batch_size = classes + 1, .images = {}, .labels = {}};
    for (std::int32_t label = 0; label < classes; ++label) {
      problem.labels.push_back(label);
      problem.images.insert(problem.images.end(), classes, -0.5 * label);
    }
    problem.labels.push_back(1);
    problem.images.insert(problem.images.end(), classes, 0.0);
    problem.images[classes * classes] = -0.0;
    for_each_engine(graph, [&](Engine& engine) {
      const EngineBatch batch(engine, problem);
      for (const bool training : {false, true}) {
        const auto program =
            engine.compile({.batch_size = problem.batch_size, .training = training});

        const BatchMetrics metrics = run_forward(*program, batch.batch());

        BOOST_TEST(top1(metrics) == 1);
        BOOST_TEST(top5(metrics) == 6);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(nan_logits_are_misses) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Graph graph("logits", {6, 1, 1});
  graph.softmax_cross_entropy(graph.flatten(graph.input()), {});
  oracle::Problem problem{
      .batch_size = 5, .images = oracle::Values(30, 0.0), .labels = {2, 2, 2, 2, 2}};
  problem.images[2] = std::numeric_limits<double>::quiet_NaN();  // of the label's class
  problem.images[6] = std::numeric_limits<double>::quiet_NaN();  // of another class
  problem.images[18] = infinity;                                 // of another class
  problem.images[24] = -infinity;                                // of another class
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch batch(engine, problem);
    const auto program = engine.compile_inference(5);

    const BatchMetrics metrics = run_forward(*program, batch.batch());

    BOOST_TEST(top1(metrics) == 0);
    BOOST_TEST(top5(metrics) == 3);  // of all without NaN: up to two others are not below
    // Of equal logits of six classes, and of five.
    BOOST_TEST(confidence(metrics) ==
               static_cast<double>(1.0F / 6) + static_cast<double>(1.0F / 5));
    BOOST_TEST(std::isnan(metrics.loss));
  });
}

BOOST_AUTO_TEST_CASE(nan_images_reach_the_loss) {
  const Graph graph = small_network();
  auto problem = oracle::random_problem(graph, 2, 2);
  problem.images[5] = std::numeric_limits<double>::quiet_NaN();
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch batch(engine, problem);
    const auto program = engine.compile_training(2);

    BOOST_TEST(!std::isfinite(run_forward(*program, batch.batch()).loss));
  });
}

BOOST_AUTO_TEST_CASE(batches_of_the_wrong_size_are_refused) {
  const Graph graph = small_network();
  const auto problem = oracle::random_problem(graph, 5, 2);
  for_each_engine(graph, [&](Engine& engine) {
    const EngineBatch batch(engine, problem);
    const auto training = engine.compile_training(4);
    const auto inference = engine.compile_inference(4);

    BOOST_CHECK_THROW(training->forward(batch.batch()), Error);
    BOOST_CHECK_THROW(training->forward(batch.first(3)), Error);
    BOOST_CHECK_THROW(inference->forward(batch.batch()), Error);
    BOOST_CHECK_THROW(inference->backward({}), Error);
    BOOST_CHECK_THROW(static_cast<void>(engine.compile_training(0)), Error);
  });
}

// The engine's own graph says what is frozen.
BOOST_AUTO_TEST_CASE(a_program_for_another_size_leaves_frozen_layers_out_of_backward) {
  for (const Candidate& candidate : candidates()) {
    BOOST_TEST_CONTEXT(candidate.name) {
      Graph frozen = pooled_network(12, 12);
      for (const ParameterId id : {0, 1, 2}) frozen.set_lr_scale(id, 0);  // conv1 and bn1
      const auto engine = candidate.make(frozen);
      load(*engine, oracle::random_state(frozen, 3));
      const Graph other = pooled_network(12, 12);
      const EngineBatch batch(*engine, oracle::random_problem(frozen, 4, 1));
      const auto names = [&](const Graph* graph) {
        std::vector<std::string> result;
        const auto program = engine->compile({.batch_size = 4, .training = true, .graph = graph});
        for (const StepTime& step : program->time_steps(batch.batch())) result.push_back(step.name);
        return result;
      };
      BOOST_TEST(names(&other) == names(nullptr), boost::test_tools::per_element());
    }
  }
}
