#include "conformance/harness.hpp"

#include "../../src/compute/module_interface.hpp"
#include "conformance/fixtures.hpp"
#include "engine/copying_exchange.hpp"
#include "engine/gpu/host_device.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/engine/convolution_choices.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/engine/norm_exchange.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>
#include <thread>

namespace lockstep::conformance {
namespace {

/// fp32 rounds at 6e-8; sums of some hundred terms, and norms that divide by small deviations,
/// amplify that. `cancellation_tolerance` is for tensors whose exact values nearly cancel, such as
/// the gradient of a bias before a batch norm. Winograd's algorithm, which also adds before and
/// after its products, has the same tolerances.
constexpr double relative_tolerance = 3e-5;
constexpr double cancellation_tolerance = 3e-6;

/// In 16 bits, the allowed error is `rounding_factor` times the largest error of several oracle
/// runs with random rounding, plus `minimum_rounding` times the magnitude of the values, in case
/// the errors of all runs are small by chance.
constexpr double rounding_factor = 3;
constexpr double minimum_rounding = 0x1p-8;
constexpr int rounded_runs = 4;

double largest(std::span<const double> values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

double norm(std::span<const double> values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

template <typename T>
double distance(std::span<const T> actual, std::span<const double> expected) {
  double sum = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    sum += std::pow(double{actual[i]} - expected[i], 2);
  }
  return std::sqrt(sum);
}

/// The expected results for one precision: the exact ones and, except for fp32, those of oracle
/// runs with random rounding.
class Expectation final {
 public:
  Expectation(Precision precision, const Graph& graph, const oracle::State& state,
              const oracle::Problem& problem, oracle::Mode mode)
      : mode_(mode), exact_(oracle::run(graph, state, problem, mode)) {
    for (int i = 0; i < rounded_runs && precision != Precision::fp32; ++i) {
      rounded_.push_back(
          oracle::run(graph, state, problem, mode,
                      oracle::random_rounding(precision, static_cast<std::uint64_t>(i))));
    }
  }

  [[nodiscard]] const oracle::Result& exact() const noexcept { return exact_; }

  /// `part(result)` selects the values to compare. `scale` is the magnitude that errors are
  /// relative to if the values nearly cancel. The expected values are `factor` times the exact
  /// ones.
  template <typename Part>
  void check(const std::string& what, std::span<const float> actual, const Part& part, double scale,
             double factor = 1) const {
    oracle::Values expected = part(exact_);
    BOOST_REQUIRE_MESSAGE(actual.size() == expected.size(),
                          what << " has " << actual.size() << " values, not " << expected.size());
    for (double& value : expected) value *= factor;
    if (rounded_.empty()) {
      check_each(what, actual, expected, scale);
      return;
    }
    double worst = 0;
    for (const oracle::Result& rounded : rounded_) {
      worst = std::max(worst, factor * distance(std::span<const double>(part(rounded)),
                                                std::span<const double>(part(exact_))));
    }
    const double elements = std::sqrt(static_cast<double>(expected.size()));
    const double allowed =
        rounding_factor * worst + minimum_rounding * (norm(expected) + 0.01 * scale * elements);
    const double error = distance(actual, std::span<const double>(expected));
    BOOST_TEST(error <= allowed, what << " is " << error << " away from the exact "
                                      << norm(expected) << " (allowed " << allowed << ')');
  }

  void check_metrics(const BatchMetrics& actual, std::int64_t samples) const {
    BOOST_TEST(actual.samples == samples);
    const double error = std::abs(actual.loss - exact_.loss);
    if (rounded_.empty()) {
      BOOST_TEST(error <= 1e-5 * (1 + std::abs(exact_.loss)));
      BOOST_TEST(top1(actual) == exact_.top1);
      BOOST_TEST(top5(actual) == exact_.top5);
      check_confidence(actual, 1e-5);
      return;
    }
    double worst = 0;
    for (const oracle::Result& rounded : rounded_) {
      worst = std::max(worst, std::abs(rounded.loss - exact_.loss));
    }
    BOOST_TEST(error <= rounding_factor * worst + minimum_rounding * exact_.loss);
    // Rounding may change hits, but every top-1 hit is a top-5 hit.
    BOOST_TEST(top1(actual) <= top5(actual));
    BOOST_TEST(top5(actual) <= samples);
    check_confidence(actual, 0.05);
  }
  /// Training does not measure it.
  void check_confidence(const BatchMetrics& actual, double tolerance) const {
    const double expected = mode_ == oracle::Mode::training ? 0 : exact_.confidence;
    BOOST_TEST(std::abs(confidence(actual) - expected) <= tolerance * expected);
  }

 private:
  static void check_each(const std::string& what, std::span<const float> actual,
                         std::span<const double> expected, double scale) {
    const double allowed = relative_tolerance * largest(expected) + cancellation_tolerance * scale;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double error = std::abs(double{actual[i]} - expected[i]);
      if (error <= allowed) continue;
      BOOST_ERROR(what << '[' << i << "] is " << actual[i] << ", not " << expected[i]
                       << " (allowed error " << allowed << ')');
      return;
    }
  }

  oracle::Mode mode_;
  oracle::Result exact_;
  std::vector<oracle::Result> rounded_;
};

const oracle::Values& logits_of(const oracle::Result& result) {
  return result.logits;
}

void check_gradients(Engine& engine, const Expectation& expected, double factor) {
  double scale = 0;
  for (const auto& gradient : expected.exact().gradients) {
    scale = std::max(scale, largest(gradient));
  }
  const std::vector<float> arena = gradients_of(engine);
  for (std::size_t id = 0; id < expected.exact().gradients.size(); ++id) {
    std::vector<float> actual(expected.exact().gradients[id].size());
    engine.to_plain(
        engine.layout().view_of(static_cast<ParameterId>(id)).in(std::span<const float>(arena)),
        static_cast<ParameterId>(id), actual);
    if (engine.graph().parameters()[id].is_frozen()) {
      BOOST_TEST(std::ranges::all_of(actual, [](float value) { return value == 0; }));
      continue;
    }
    expected.check(
        "gradient of " + engine.graph().parameters()[id].name,
        actual, [&](const oracle::Result& result) -> const auto& { return result.gradients[id]; },
        scale, factor);
  }
}

void check_padding(Engine& engine, const std::vector<bool>& mask) {
  const std::vector<float> gradients = gradients_of(engine);
  const std::vector<float> parameters = parameters_of(engine);
  std::size_t dirty = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) {
    const bool clean = gradients[i] == 0.0F && parameters[i] == 0.0F;
    if (!mask[i] && !clean) ++dirty;
  }
  BOOST_TEST(dirty == 0u, dirty << " values of padding are not zero");
}

void check_training(Engine& engine, Precision precision, const oracle::State& state,
                    const oracle::Problem& problem) {
  const Expectation expected(precision, engine.graph(), state, problem, oracle::Mode::training);
  const EngineBatch batch(engine, problem);
  const auto mask = element_mask(engine);
  CopyingExchange exchange(engine);
  const auto program = exchange.compile_training(problem.batch_size);
  Program::BackwardOptions options{.loss_scale = static_cast<float>(problem.loss_scale),
                                   .reduces = true};
  poison_gradients(engine);

  const BatchMetrics metrics = run_forward(*program, batch.batch());
  program->backward(options);

  expected.check_metrics(metrics, problem.batch_size);
  expected.check("logits", program->logits(), logits_of, largest(expected.exact().logits));
  expected.check(
      "batch statistics", program->batch_statistics(),
      [](const oracle::Result& result) -> const auto& { return result.batch_statistics; }, 1);
  check_gradients(engine, expected, 1);
  check_padding(engine, mask);
  BOOST_TEST(exchange.started_all());
  BOOST_TEST((gradients_of(engine) == exchange.copy),
             "gradients changed after their reduction started");

  // Accumulate a second backward: twice the gradients, independent of the activations before.
  program->forward(batch.batch());
  options.accumulate = true;
  program->backward(options);
  check_gradients(engine, expected, 2);
  check_padding(engine, mask);
  BOOST_TEST((gradients_of(engine) == exchange.copy));

  // A micro-step that is not the last reduces nothing.
  exchange.started.clear();
  options.reduces = false;
  program->forward(batch.batch());
  program->backward(options);
  BOOST_TEST(exchange.started.empty());
  static_cast<void>(gradients_of(engine));  // waits for a device that still computes
}

void check_inference(Engine& engine, Precision precision, const oracle::State& state,
                     const oracle::Problem& problem) {
  const Expectation expected(precision, engine.graph(), state, problem, oracle::Mode::inference);
  const EngineBatch batch(engine, problem);
  const auto program = engine.compile_inference(problem.batch_size);

  const BatchMetrics metrics = run_forward(*program, batch.batch());

  expected.check_metrics(metrics, problem.batch_size);
  expected.check("logits of inference", program->logits(), logits_of,
                 largest(expected.exact().logits));

  oracle::Problem part = problem;
  part.batch_size = (problem.batch_size + 1) / 2;
  part.images.resize(part.images.size() / static_cast<std::size_t>(problem.batch_size) *
                     static_cast<std::size_t>(part.batch_size));
  part.labels.resize(static_cast<std::size_t>(part.batch_size));
  const Expectation expected_part(precision, engine.graph(), state, part, oracle::Mode::inference);
  expected_part.check_metrics(run_forward(*program, batch.first(part.batch_size)), part.batch_size);
  expected_part.check("logits of part of a batch",
                      program->logits().first(expected_part.exact().logits.size()), logits_of,
                      largest(expected_part.exact().logits));
}

}  // namespace

namespace {

/// Engines of the GPU module. Ends the test as skipped if there is no GPU.
std::vector<Candidate> cuda_candidates() {
  if (const CudaAvailability cuda = probe_cuda(); !cuda.available) {
    std::printf("skipped: %s\n", cuda.reason.c_str());
    std::fflush(stdout);
    std::_Exit(77);
  }
  // Never destroyed: libraries that cuDNN loads later would already be unloaded.
  static const auto& device = *new std::shared_ptr<gpu::Device>(
      load_cuda_module().make_device({.plans = {.deterministic = true}}));
  std::vector<Candidate> result;
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    result.push_back({.name = "cuda, " + std::string(to_string(precision)),
                      .make =
                          [=](const Graph& graph) {
                            return load_cuda_module().make_engine(
                                device, graph, {.tail_size = 7, .precision = precision});
                          },
                      .precision = precision});
  }
  return result;
}

}  // namespace

std::vector<Candidate> candidates() {
  const char* asked = std::getenv("LOCKSTEP_TEST_ENGINES");
  if (asked != nullptr && std::string_view(asked) == "cuda") return cuda_candidates();
  const auto cpu = [](Precision precision, const SumOverRanks& sum_over_ranks = {}) {
    return [=](const Graph& graph) {
      return make_cpu_engine(
          graph,
          {.threads = 2, .tail_size = 7, .precision = precision, .sum_over_ranks = sum_over_ranks});
    };
  };
  // The GPU engine over a host device: all of it except the launches and cuDNN's convolutions.
  // Only the work of late devices may access their memory.
  static class final : public NormExchange {
    void sum(std::span<double>) override {}
    void sum(std::span<float>) override {}
    void await(FunctionRef<bool()> reached) override {
      while (!reached()) std::this_thread::yield();
    }
  } norms_of_one_rank;
  const auto device = [](Precision precision, NormExchange* norms = nullptr,
                         gpu::HostWork when = gpu::HostWork::at_once) {
    return [=](const Graph& graph) {
      return gpu::make_device_engine(
          gpu::make_host_device(when, when == gpu::HostWork::late ? gpu::HostMemoryGuard::on
                                                                  : gpu::HostMemoryGuard::off),
          graph, {.tail_size = 7, .precision = precision, .norms = norms});
    };
  };
  const SumOverRanks one_rank = [](std::span<double>) {};
  std::vector<Candidate> all{
      {.name = "cpu, 2 threads, fp32", .make = cpu(Precision::fp32)},
      {.name = "cpu, 2 threads, fp32, winograd",
       .make =
           [](const Graph& graph) {
             return make_cpu_engine(
                 graph, {.threads = 2, .tail_size = 7, .convolutions = all_winograd(graph)});
           }},
      {.name = "cpu, 2 threads, fp32, synchronised", .make = cpu(Precision::fp32, one_rank)},
      {.name = "device, fp32", .make = device(Precision::fp32)},
      {.name = "device, fp32, synchronised", .make = device(Precision::fp32, &norms_of_one_rank)},
      {.name = "late device, fp32", .make = device(Precision::fp32, nullptr, gpu::HostWork::late)},
      {.name = "late device, fp32, synchronised",
       .make = device(Precision::fp32, &norms_of_one_rank, gpu::HostWork::late)},
      {.name = "device, bf16", .make = device(Precision::bf16), .precision = Precision::bf16},
      {.name = "device, fp16", .make = device(Precision::fp16), .precision = Precision::fp16}};
  if (cpu_computes_in(Precision::bf16)) {
    all.push_back({.name = "cpu, 2 threads, bf16",
                   .make = cpu(Precision::bf16),
                   .precision = Precision::bf16});
    all.push_back({.name = "cpu, 2 threads, bf16, synchronised",
                   .make = cpu(Precision::bf16, one_rank),
                   .precision = Precision::bf16});
  }
  return all;
}

ConvolutionChoices all_winograd(const Graph& graph) {
  ConvolutionChoices choices;
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<Conv2d>(&node.op);
    const auto shape = op != nullptr ? winograd_shape(graph, *op) : std::nullopt;
    if (!shape) continue;
    for (const ConvolutionStep step : convolution_steps) {
      choices.set(*shape, step, true);
    }
  }
  return choices;
}

EngineBatch::EngineBatch(Engine& engine, const oracle::Problem& problem)
    : values_(problem.images.size()),
      labels_(problem.labels.size()),
      mixes_(problem.mixes),
      dropped_(problem.dropped),
      size_(problem.batch_size) {
  const Shape& input = engine.graph().input_shape();
  const auto channels = static_cast<std::size_t>(input[0]);
  const std::size_t area = static_cast<std::size_t>(input.elements()) / channels;
  const bool nhwc = engine.input_format().layout == ImageLayout::nhwc;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const std::size_t n = i / (channels * area);
    const std::size_t c = i / area % channels;
    const std::size_t to = nhwc ? (n * area + i % area) * channels + c : i;
    values_[to] = static_cast<float>(problem.images[i]);
  }
  std::copy(problem.labels.begin(), problem.labels.end(), labels_.data());
}

Batch EngineBatch::batch() const noexcept {
  return first(size_);
}

Batch EngineBatch::first(std::int64_t samples) const noexcept {
  return {.values = values_.data(),
          .targets = {.labels = labels_.data(), .mixes = mixes_.empty() ? nullptr : mixes_.data()},
          .size = samples,
          .dropped = {.masks = dropped_.empty() ? nullptr : dropped_.data()}};
}

void load(Engine& engine, const oracle::State& state) {
  std::vector<float> arena(engine.layout().size());
  for (std::size_t id = 0; id < state.parameters.size(); ++id) {
    const std::vector<float> plain(state.parameters[id].begin(), state.parameters[id].end());
    engine.from_plain(
        plain, static_cast<ParameterId>(id),
        engine.layout().view_of(static_cast<ParameterId>(id)).in(std::span<float>(arena)));
  }
  engine.memory().write(arena, engine.parameters());
  auto running = engine.running_statistics().begin();
  for (const oracle::Values& values : state.statistics) {
    running = std::transform(values.begin(), values.end(), running,
                             [](double value) { return static_cast<float>(value); });
  }
}

std::vector<float> gradients_of(Engine& engine) {
  std::vector<float> copy(engine.layout().size());
  engine.memory().read(engine.gradients().first(copy.size()), copy);
  return copy;
}

std::vector<float> parameters_of(Engine& engine) {
  std::vector<float> copy(engine.layout().size());
  engine.memory().read(engine.parameters(), copy);
  return copy;
}

BatchMetrics run_forward(Program& program, const Batch& batch) {
  program.forward(batch);
  return program.metrics();
}

std::vector<bool> element_mask(const Engine& engine) {
  std::vector<float> arena(engine.layout().size(), 0.0F);
  for (std::size_t id = 0; id < engine.graph().parameters().size(); ++id) {
    const Shape& shape = engine.graph().parameters()[id].shape;
    const std::vector<float> ones(static_cast<std::size_t>(shape.elements()), 1.0F);
    engine.from_plain(
        ones, static_cast<ParameterId>(id),
        engine.layout().view_of(static_cast<ParameterId>(id)).in(std::span<float>(arena)));
  }
  std::vector<bool> mask(arena.size());
  std::transform(arena.begin(), arena.end(), mask.begin(),
                 [](float value) { return value != 0.0F; });
  return mask;
}

void poison_gradients(Engine& engine) {
  const auto mask = element_mask(engine);
  std::vector<float> arena(mask.size());
  std::transform(mask.begin(), mask.end(), arena.begin(), [](bool element) {
    return element ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  });
  for (const ArenaView& view : engine.layout().views) {
    if (view.lr_scale == 0) std::ranges::fill(view.in(std::span(arena)), 0.0F);
  }
  engine.memory().write(arena, engine.gradients().first(arena.size()));
}

void check_against_oracle(const Candidate& candidate, const Graph& graph, std::int64_t batch_size) {
  BOOST_TEST_CONTEXT(candidate.name << ": " << graph.name() << ", batch " << batch_size) {
    const auto state = oracle::random_state(graph, 17);
    const auto problem = oracle::random_problem(graph, batch_size, 23);
    const auto engine = candidate.make(graph);
    load(*engine, state);
    check_training(*engine, candidate.precision, state, problem);
    check_inference(*engine, candidate.precision, state, problem);
  }
}

void check_mixed_against_oracle(const Candidate& candidate, const Graph& graph,
                                std::int64_t batch_size) {
  BOOST_TEST_CONTEXT(candidate.name << ": " << graph.name() << ", mixed batch " << batch_size) {
    const auto state = oracle::random_state(graph, 17);
    const auto problem = oracle::random_problem(graph, batch_size, 23);
    const auto engine = candidate.make(graph);
    load(*engine, state);
    check_training(*engine, candidate.precision, state, oracle::mixed(problem, 29));
  }
}

}  // namespace lockstep::conformance
