#include "../../src/engine/cpu/winograd.hpp"

#include "../../src/engine/cpu/convolution.hpp"
#include "core/sanitizers.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/bfloat16.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <random>
#include <unordered_map>
#include <vector>

using namespace lockstep;
using namespace lockstep::cpu;

namespace {

struct Case {
  std::int64_t batch;
  std::int64_t in_channels;
  std::int64_t out_channels;
  std::int64_t height;
  std::int64_t width;
  std::int64_t padding;
};

std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << c.batch << " x " << c.in_channels << "x" << c.height << "x" << c.width << " to "
            << c.out_channels << ", padding " << c.padding;
}

const dnnl::engine& engine() {
  static const dnnl::engine made(dnnl::engine::kind::cpu, 0);
  return made;
}

/// A memory object that owns its values.
class Values final {
 public:
  explicit Values(const Desc& desc) : buffer_(desc.get_size()), memory_(desc, engine(), data()) {}
  /// Values that bf16 can represent.
  Values(const Desc& desc, unsigned seed) : Values(f32(dims_of(desc), Tag::abcd)) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (float& value : span()) value = static_cast<float>(Bfloat16(normal(generator)));
    if (desc != memory_.get_desc()) *this = in(desc);
  }
  [[nodiscard]] dnnl::memory memory() const { return memory_; }
  [[nodiscard]] Values in(const Desc& desc) const {
    Values to(desc);
    dnnl::stream stream(engine());
    dnnl::memory from = memory_;
    dnnl::reorder(from, to.memory_).execute(stream, from, to.memory_);
    stream.wait();
    return to;
  }
  /// Row-major.
  [[nodiscard]] std::vector<float> plain_values() const {
    Values to = in(f32(dims_of(memory_.get_desc()), Tag::abcd));
    return {to.span().begin(), to.span().end()};
  }
  [[nodiscard]] std::span<float> span() {
    return {reinterpret_cast<float*>(buffer_.data()), buffer_.span().size() / sizeof(float)};
  }

 private:
  [[nodiscard]] void* data() { return buffer_.data(); }
  AlignedBuffer<std::byte> buffer_;
  dnnl::memory memory_;
};

Convolution convolution(const Case& c) {
  return Convolution({.name = "tested",
                      .source = Shape{c.batch, c.in_channels, c.height, c.width},
                      .weight = Shape{c.out_channels, c.in_channels, 3, 3},
                      .target = Shape{c.batch, c.out_channels, c.height + 2 * c.padding - 2,
                                      c.width + 2 * c.padding - 2},
                      .stride = 1,
                      .padding = c.padding});
}

template <typename Primitive>
void execute(const typename Primitive::primitive_desc& pd,
             std::unordered_map<int, dnnl::memory> arguments) {
  const Values scratch(pd.scratchpad_desc());
  arguments.emplace(DNNL_ARG_SCRATCHPAD, scratch.memory());
  dnnl::stream stream(engine());
  Primitive(pd).execute(stream, arguments);
  stream.wait();
}

/// The step's result by the library's direct algorithm.
std::vector<float> direct(const Case& c, ConvolutionStep step) {
  const Convolution each = convolution(c);
  const auto forward = each.forward(dnnl::prop_kind::forward_training, engine());
  const Desc weight = f32(Dims{c.out_channels, c.in_channels, 3, 3}, Tag::abcd);
  if (step == ConvolutionStep::forward) {
    const Values source(forward.src_desc(), 1);
    const Values weights = Values(weight, 2).in(forward.weights_desc());
    const Values target(forward.dst_desc());
    execute<Convolution::Forward>(forward, {{DNNL_ARG_SRC, source.memory()},
                                            {DNNL_ARG_WEIGHTS, weights.memory()},
                                            {DNNL_ARG_DST, target.memory()}});
    return target.plain_values();
  }
  if (step == ConvolutionStep::data_gradient) {
    const auto pd = each.backward_data(forward, engine());
    const Values gradient(pd.diff_dst_desc(), 3);
    const Values weights = Values(weight, 2).in(pd.weights_desc());
    const Values target(pd.diff_src_desc());
    execute<Convolution::BackwardData>(pd, {{DNNL_ARG_DIFF_DST, gradient.memory()},
                                            {DNNL_ARG_WEIGHTS, weights.memory()},
                                            {DNNL_ARG_DIFF_SRC, target.memory()}});
    return target.plain_values();
  }
  const auto pd = each.backward_weights(forward, engine());
  const Values source(pd.src_desc(), 1);
  const Values gradient(pd.diff_dst_desc(), 3);
  const Values target(pd.diff_weights_desc());
  execute<Convolution::BackwardWeights>(pd, {{DNNL_ARG_SRC, source.memory()},
                                             {DNNL_ARG_DIFF_DST, gradient.memory()},
                                             {DNNL_ARG_DIFF_WEIGHTS, target.memory()}});
  return target.plain_values();
}

struct Formats {
  Desc source;
  Desc target;
};
Formats formats_of(const Case& c) {
  const auto forward = convolution(c).forward(dnnl::prop_kind::forward_training, engine());
  return {.source = forward.src_desc(), .target = forward.dst_desc()};
}
Formats in_tag(const Case& c, Tag tag, DataType type = DataType::f32) {
  const Formats formats = formats_of(c);
  return {.source = {dims_of(formats.source), type, tag},
          .target = {dims_of(formats.target), type, tag}};
}

/// The step's result by Winograd's algorithm. Scratch memory and the result start as NaN, and the
/// memory around scratch is checked.
std::vector<float> winograd(const Case& c, ConvolutionStep step, const Formats& formats,
                            int threads = 2) {
  const WinogradPlan plan(
      {.step = step, .source = formats.source, .target = formats.target, .padding = c.padding},
      threads);
  Values source(plan.source_desc(), 1);
  Values target(plan.target_desc(), 3);
  const Desc plain_weight = f32(Dims{c.out_channels, c.in_channels, 3, 3}, Tag::abcd);
  Values weight = Values(plain_weight, 2).in(plan.weight_desc());
  Values scratch(plan.scratch_desc());
  Values& result = step == ConvolutionStep::forward         ? target
                   : step == ConvolutionStep::data_gradient ? source
                                                            : weight;
  std::ranges::fill(scratch.span(), std::nanf(""));
  std::ranges::fill(result.span(), std::nanf(""));
  const bool backward = step == ConvolutionStep::data_gradient;
  WinogradStep("tested", plan,
               {.input = backward ? target.memory() : source.memory(),
                .weight = weight.memory(),
                .output = backward ? source.memory() : target.memory(),
                .scratch = scratch.memory()})
      .run();
  return result.plain_values();
}

/// Largest difference, relative to the largest value.
double difference(const std::vector<float>& found, const std::vector<float>& expected) {
  BOOST_REQUIRE(found.size() == expected.size());
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return INFINITY;
    largest = std::max(largest, std::abs(double{expected[i]}));
    difference = std::max(difference, std::abs(double{found[i]} - double{expected[i]}));
  }
  return difference / largest;
}

// Partial tiles and vectors, one block and several, small filters and large ones (a product per
// panel of channels), more threads than tiles.
const std::vector<Case> cases{
    {.batch = 3, .in_channels = 16, .out_channels = 16, .height = 8, .width = 8, .padding = 1},
    {.batch = 1, .in_channels = 17, .out_channels = 33, .height = 3, .width = 5, .padding = 0},
    {.batch = 2, .in_channels = 32, .out_channels = 16, .height = 6, .width = 7, .padding = 2},
    {.batch = 6, .in_channels = 64, .out_channels = 64, .height = 28, .width = 27, .padding = 1},
    {.batch = 4, .in_channels = 208, .out_channels = 144, .height = 7, .width = 7, .padding = 1},
    {.batch = 9, .in_channels = 144, .out_channels = 200, .height = 30, .width = 29, .padding = 1}};

}  // namespace

BOOST_AUTO_TEST_CASE(steps_agree_with_the_direct_algorithm) {
  for (const Case& c : cases) {
    for (const ConvolutionStep step : convolution_steps) {
      BOOST_TEST_CONTEXT(c << ", " << to_string(step)) {
        BOOST_TEST(difference(winograd(c, step, formats_of(c)), direct(c, step)) < 1e-5);
      }
    }
  }
}

// With 16 lanes or 8, the bits are the same.
BOOST_AUTO_TEST_CASE(tensors_may_be_channels_last_or_in_any_other_format) {
  const Case c{
      .batch = 2, .in_channels = 24, .out_channels = 40, .height = 9, .width = 6, .padding = 1};
  for (const ConvolutionStep step : convolution_steps) {
    const std::vector<float> found = winograd(c, step, in_tag(c, Tag::nhwc));
    BOOST_TEST(difference(found, direct(c, step)) < 1e-5);
    for (const Tag tag : {Tag::nChw8c, Tag::nChw16c, Tag::nchw}) {
      BOOST_TEST((winograd(c, step, in_tag(c, tag)) == found));
    }
  }
}

// Arithmetic is in fp32, and a result in bf16 is rounded once.
BOOST_AUTO_TEST_CASE(tensors_in_bf16_give_the_result_in_fp32_rounded) {
  for (const Case& c : cases) {
    for (const ConvolutionStep step : convolution_steps) {
      std::vector<float> expected = winograd(c, step, formats_of(c));
      if (step != ConvolutionStep::weight_gradient) {
        for (float& value : expected) value = static_cast<float>(Bfloat16(value));
      }
      for (const Tag tag : {Tag::nhwc, Tag::nChw16c, Tag::nchw}) {
        BOOST_TEST_CONTEXT(c << ", " << to_string(step)) {
          BOOST_TEST((winograd(c, step, in_tag(c, tag, DataType::bf16)) == expected));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(results_depend_neither_on_threads_nor_on_the_rest_of_the_batch) {
  for (const Case& c : cases) {
    for (const ConvolutionStep step : {ConvolutionStep::forward, ConvolutionStep::data_gradient}) {
      const std::vector<float> one = winograd(c, step, formats_of(c), 1);
      for (const int threads : {2, 3, 4, 7}) {
        BOOST_TEST((winograd(c, step, formats_of(c), threads) == one));
      }
      Case first = c;
      first.batch = 1;
      const std::vector<float> alone = winograd(first, step, formats_of(first), 2);
      BOOST_TEST(std::ranges::equal(alone, std::span(one).first(alone.size())));
    }
    // A weight gradient is a sum per thread, but repeats.
    for (const int threads : {1, 2, 3, 4, 7}) {
      const auto step = ConvolutionStep::weight_gradient;
      const std::vector<float> found = winograd(c, step, formats_of(c), threads);
      BOOST_TEST(difference(found, direct(c, step)) < 1e-5);
      BOOST_TEST((winograd(c, step, formats_of(c), threads) == found));
    }
  }
}

BOOST_AUTO_TEST_CASE(fewer_threads_than_planned_are_an_error,
                     *boost::unit_test::enable_if<test::parallel_loops>()) {
  const Case& c = cases.front();
  bool refused = false;
  // A nested region has one thread.
#pragma omp parallel num_threads(2)
  {
#pragma omp single
    try {
      static_cast<void>(winograd(c, ConvolutionStep::forward, formats_of(c), 2));
    } catch (const Error& error) {
      refused = error.status() == ExitStatus::usage;
    }
  }
  BOOST_TEST(refused);
}
