#include "conformance/harness.hpp"

#include "conformance/fixtures.hpp"
#include "lockstep/engine/cpu_engine.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::conformance {
namespace {

/// fp32 rounds at 6e-8; sums of some hundred terms, and norms that divide by small deviations,
/// multiply that. The floor is for tensors whose true values cancel to nearly nothing, as the
/// gradient of a bias before a batch norm does.
constexpr double relative_tolerance = 3e-5;
constexpr double floor_tolerance = 3e-6;

double largest(std::span<const double> values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

void check_close(const std::string& what, std::span<const float> actual,
                 std::span<const double> expected, double scale) {
  BOOST_REQUIRE_MESSAGE(actual.size() == expected.size(),
                        what << " has " << actual.size() << " values, not " << expected.size());
  const double allowed = relative_tolerance * largest(expected) + floor_tolerance * scale;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(double{actual[i]} - expected[i]);
    if (error <= allowed) continue;
    BOOST_ERROR(what << '[' << i << "] is " << actual[i] << ", not " << expected[i]
                     << " (allowed error " << allowed << ')');
    return;
  }
}

void check_metrics(const BatchMetrics& actual, const oracle::Result& expected,
                   std::int64_t samples) {
  BOOST_TEST(actual.samples == samples);
  BOOST_TEST(std::abs(actual.loss - expected.loss) <= 1e-5 * (1 + std::abs(expected.loss)));
  BOOST_TEST(actual.top1 == expected.top1);
  BOOST_TEST(actual.top5 == expected.top5);
}

void check_gradients(Engine& engine, const oracle::Result& expected, double factor) {
  double scale = 0;
  for (const auto& gradient : expected.gradients) scale = std::max(scale, largest(gradient));
  for (std::size_t id = 0; id < expected.gradients.size(); ++id) {
    oracle::Values scaled = expected.gradients[id];
    for (double& value : scaled) value *= factor;
    std::vector<float> actual(scaled.size());
    engine.to_plain(engine.gradients(), static_cast<ParameterId>(id), actual);
    check_close("gradient of " + engine.graph().parameters()[id].name, actual, scaled, scale);
  }
}

void check_padding(Engine& engine, const std::vector<bool>& mask) {
  std::size_t dirty = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const bool clean = engine.gradients()[i] == 0.0F && engine.parameters()[i] == 0.0F;
    if (!mask[i] && !clean) ++dirty;
  }
  BOOST_TEST(dirty == 0u, dirty << " values of padding are not zero");
}

void check_training(Engine& engine, const oracle::State& state, const oracle::Problem& problem) {
  const auto expected = oracle::run(engine.graph(), state, problem, oracle::Mode::training);
  const EngineBatch batch(engine, problem);
  const auto mask = element_mask(engine);
  const auto program = engine.compile_training(problem.batch_size);
  const Program::BackwardOptions overwrite{.loss_scale = static_cast<float>(problem.loss_scale),
                                           .accumulate = false};
  poison_gradients(engine);

  const BatchMetrics metrics = program->forward(batch.batch());
  CopyingObserver observer(engine);
  program->backward(overwrite, observer);

  check_metrics(metrics, expected, problem.batch_size);
  check_close("logits", program->logits(), expected.logits, largest(expected.logits));
  check_close("batch statistics", program->batch_statistics(), expected.batch_statistics, 1);
  check_gradients(engine, expected, 1);
  check_padding(engine, mask);
  BOOST_TEST(observer.filled() == engine.layout().size());
  BOOST_TEST(!observer.ever_decreased());
  const std::span<const float> final = engine.gradients().first(engine.layout().size());
  BOOST_TEST(std::equal(final.begin(), final.end(), observer.copy().begin()),
             "gradients changed after they were told to be final");

  // Once more, added: twice the gradients, whatever the activations had been left as.
  static_cast<void>(program->forward(batch.batch()));
  Program::BackwardOptions accumulate = overwrite;
  accumulate.accumulate = true;
  CopyingObserver second(engine);
  program->backward(accumulate, second);
  check_gradients(engine, expected, 2);
  check_padding(engine, mask);
  BOOST_TEST(second.filled() == engine.layout().size());
}

void check_inference(Engine& engine, const oracle::State& state, const oracle::Problem& problem) {
  const auto expected = oracle::run(engine.graph(), state, problem, oracle::Mode::inference);
  const EngineBatch batch(engine, problem);
  const auto program = engine.compile_inference(problem.batch_size);

  const BatchMetrics metrics = program->forward(batch.batch());

  check_metrics(metrics, expected, problem.batch_size);
  check_close("logits of inference", program->logits(), expected.logits, largest(expected.logits));

  oracle::Problem part = problem;
  part.batch_size = (problem.batch_size + 1) / 2;
  part.images.resize(part.images.size() / static_cast<std::size_t>(problem.batch_size) *
                     static_cast<std::size_t>(part.batch_size));
  part.labels.resize(static_cast<std::size_t>(part.batch_size));
  const auto expected_part = oracle::run(engine.graph(), state, part, oracle::Mode::inference);
  check_metrics(program->forward(batch.first(part.batch_size)), expected_part, part.batch_size);
}

}  // namespace

std::vector<Candidate> candidates() {
  return {{.name = "cpu, 2 threads", .make = [](const Graph& graph) {
             return make_cpu_engine(graph, {.threads = 2, .tail_size = 7});
           }}};
}

EngineBatch::EngineBatch(const Engine& engine, const oracle::Problem& problem)
    : images_(problem.images.size()), labels_(problem.labels.size()), size_(problem.batch_size) {
  const ImageShape image = engine.graph().image();
  const auto channels = static_cast<std::size_t>(image.channels);
  const auto area = static_cast<std::size_t>(image.height * image.width);
  const bool nhwc = engine.input_format().layout == ImageLayout::nhwc;
  for (std::size_t i = 0; i < images_.size(); ++i) {
    const std::size_t n = i / (channels * area);
    const std::size_t c = i / area % channels;
    const std::size_t to = nhwc ? (n * area + i % area) * channels + c : i;
    images_[to] = static_cast<float>(problem.images[i]);
  }
  std::copy(problem.labels.begin(), problem.labels.end(), labels_.data());
}

Batch EngineBatch::batch() const noexcept {
  return first(size_);
}

Batch EngineBatch::first(std::int64_t samples) const noexcept {
  return {.images = images_.data(), .labels = labels_.data(), .size = samples};
}

void CopyingObserver::gradients_ready(std::size_t filled) {
  if (filled < filled_) {
    decreased_ = true;
    return;
  }
  const std::span<const float> gradients = engine_.gradients();
  std::copy(gradients.begin() + static_cast<std::ptrdiff_t>(filled_),
            gradients.begin() + static_cast<std::ptrdiff_t>(filled),
            copy_.begin() + static_cast<std::ptrdiff_t>(filled_));
  filled_ = filled;
}

void load(Engine& engine, const oracle::State& state) {
  for (std::size_t id = 0; id < state.parameters.size(); ++id) {
    const std::vector<float> plain(state.parameters[id].begin(), state.parameters[id].end());
    engine.from_plain(plain, static_cast<ParameterId>(id), engine.parameters());
  }
  auto running = engine.running_statistics().begin();
  for (const oracle::Values& values : state.statistics) {
    running = std::transform(values.begin(), values.end(), running,
                             [](double value) { return static_cast<float>(value); });
  }
}

std::vector<bool> element_mask(const Engine& engine) {
  std::vector<float> arena(engine.layout().size(), 0.0F);
  for (std::size_t id = 0; id < engine.graph().parameters().size(); ++id) {
    const Shape& shape = engine.graph().parameters()[id].shape;
    const std::vector<float> ones(static_cast<std::size_t>(shape.elements()), 1.0F);
    engine.from_plain(ones, static_cast<ParameterId>(id), arena);
  }
  std::vector<bool> mask(arena.size());
  std::transform(arena.begin(), arena.end(), mask.begin(),
                 [](float value) { return value != 0.0F; });
  return mask;
}

void poison_gradients(Engine& engine) {
  const auto mask = element_mask(engine);
  for (std::size_t i = 0; i < mask.size(); ++i) {
    engine.gradients()[i] = mask[i] ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  }
}

void check_against_oracle(const Candidate& candidate, const Graph& graph, std::int64_t batch_size) {
  BOOST_TEST_CONTEXT(candidate.name << ": " << graph.name() << ", batch " << batch_size) {
    const auto state = oracle::random_state(graph, 17);
    const auto problem = oracle::random_problem(graph, batch_size, 23);
    const auto engine = candidate.make(graph);
    load(*engine, state);
    check_training(*engine, state, problem);
    check_inference(*engine, state, problem);
  }
}

}  // namespace lockstep::conformance
