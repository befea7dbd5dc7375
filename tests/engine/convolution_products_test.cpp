#include "../../src/engine/cpu/convolution_products.hpp"
#include "lockstep/core/bfloat16.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

using namespace lockstep;
using namespace lockstep::cpu;

namespace {

/// All extents of a convolution; images are square.
struct Problem {
  std::int64_t samples;
  std::int64_t channels;
  std::int64_t size;
  std::int64_t filters;
  Window window;

  /// Height and width of the output.
  [[nodiscard]] std::int64_t height() const { return output_extent(window.height); }
  [[nodiscard]] std::int64_t width() const { return output_extent(window.width); }

 private:
  [[nodiscard]] std::int64_t output_extent(std::int64_t filter) const {
    return (size + 2 * window.padding - filter) / window.stride + 1;
  }
};

const std::vector<Problem> problems{
    {.samples = 3, .channels = 5, .size = 4, .filters = 7, .window = {}},
    {.samples = 2, .channels = 32, .size = 7, .filters = 64, .window = {1, 1, 2, 0}},
    {.samples = 2, .channels = 16, .size = 8, .filters = 33, .window = {3, 3, 1, 1}},
    {.samples = 3, .channels = 17, .size = 7, .filters = 16, .window = {3, 3, 2, 1}},
    {.samples = 1, .channels = 8, .size = 6, .filters = 8, .window = {3, 3, 1, 0}},
    {.samples = 2, .channels = 3, .size = 13, .filters = 9, .window = {7, 7, 2, 3}},
    {.samples = 2, .channels = 4, .size = 2, .filters = 5, .window = {5, 5, 1, 2}},
    {.samples = 2, .channels = 4, .size = 5, .filters = 5, .window = {1, 3, 1, 1}},
};

/// Small whole numbers, so that sums of their products are exact.
std::vector<Bfloat16> numbers(std::int64_t count, std::uint32_t seed) {
  std::vector<Bfloat16> values;
  for (std::int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    values.emplace_back(static_cast<float>(static_cast<int>(seed >> 24) % 7 - 3));
  }
  return values;
}

std::vector<float> by_definition(const Problem& problem, const std::vector<Bfloat16>& source,
                                 const std::vector<Bfloat16>& gradient) {
  const std::int64_t p = problem.height();
  const std::int64_t q = problem.width();
  std::vector<float> weight;
  for (std::int64_t k = 0; k < problem.filters; ++k) {
    for (std::int64_t r = 0; r < problem.window.height; ++r) {
      for (std::int64_t s = 0; s < problem.window.width; ++s) {
        for (std::int64_t c = 0; c < problem.channels; ++c) {
          float sum = 0;
          for (std::int64_t place = 0; place < problem.samples * p * q; ++place) {
            const std::int64_t n = place / (p * q);
            const std::int64_t y =
                place / q % p * problem.window.stride + r - problem.window.padding;
            const std::int64_t x = place % q * problem.window.stride + s - problem.window.padding;
            if (y < 0 || y >= problem.size || x < 0 || x >= problem.size) continue;
            const std::int64_t seen =
                ((n * problem.size + y) * problem.size + x) * problem.channels + c;
            sum += float{source[static_cast<std::size_t>(seen)]} *
                   float{gradient[static_cast<std::size_t>(place * problem.filters + k)]};
          }
          weight.push_back(sum);
        }
      }
    }
  }
  return weight;
}

std::vector<float> by_product(const Problem& problem, std::vector<Bfloat16> source,
                              std::vector<Bfloat16> gradient) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const std::int64_t p = problem.height();
  const std::int64_t q = problem.width();
  const WeightProduct made =
      WeightProduct::make(Dims{problem.samples, problem.channels, problem.size, problem.size},
                          Dims{problem.samples, problem.filters, p, q}, problem.window, engine);
  std::vector<Bfloat16> patches(made.patches.get_size() / sizeof(Bfloat16), Bfloat16(99.0F));
  std::vector<float> weight(made.weight.get_size() / sizeof(float), 99.0F);
  std::vector<std::byte> scratch(made.product.scratchpad_desc().get_size() + 1);
  const dnnl::memory source_memory(made.source, engine, source.data());
  dnnl::memory patches_memory(made.patches, engine, patches.data());
  if (made.window.is_point()) {
    patches_memory.set_data_handle(source.data());
  } else {
    PatchesStep(source_memory, patches_memory, dims_of(made.gradient), made.window).run();
  }
  dnnl::matmul(made.product)
      .execute(stream, {{DNNL_ARG_SRC, dnnl::memory(made.gradient_rows, engine, gradient.data())},
                        {DNNL_ARG_WEIGHTS, patches_memory},
                        {DNNL_ARG_DST, dnnl::memory(made.weight_rows, engine, weight.data())},
                        {DNNL_ARG_SCRATCHPAD,
                         dnnl::memory(made.product.scratchpad_desc(), engine, scratch.data())}});
  stream.wait();
  return weight;
}

std::vector<float> data_by_definition(const Problem& problem, const std::vector<Bfloat16>& gradient,
                                      const std::vector<Bfloat16>& weight) {
  const auto& [height, width, stride, padding] = problem.window;
  std::vector<float> source(
      static_cast<std::size_t>(problem.samples * problem.size * problem.size * problem.channels));
  for (std::int64_t place = 0; place < problem.samples * problem.height() * problem.width();
       ++place) {
    const std::int64_t n = place / (problem.height() * problem.width());
    const std::int64_t top = place / problem.width() % problem.height() * stride - padding;
    const std::int64_t left = place % problem.width() * stride - padding;
    for (std::int64_t point = 0; point < height * width; ++point) {
      const std::int64_t y = top + point / width;
      const std::int64_t x = left + point % width;
      if (y < 0 || y >= problem.size || x < 0 || x >= problem.size) continue;
      for (std::int64_t k = 0; k < problem.filters; ++k) {
        const float of_place{gradient[static_cast<std::size_t>(place * problem.filters + k)]};
        for (std::int64_t c = 0; c < problem.channels; ++c) {
          const float of_filter{weight[static_cast<std::size_t>(
              (k * height * width + point) * problem.channels + c)]};
          source[static_cast<std::size_t>(
              ((n * problem.size + y) * problem.size + x) * problem.channels + c)] +=
              of_place * of_filter;
        }
      }
    }
  }
  return source;
}

/// Runs the steps in the order of conv2d's lowering.
std::vector<Bfloat16> data_by_product(const Problem& problem, std::vector<Bfloat16> gradient,
                                      std::vector<Bfloat16> weight) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const DataProduct made =
      DataProduct::make(Dims{problem.samples, problem.channels, problem.size, problem.size},
                        Dims{problem.samples, problem.filters, problem.height(), problem.width()},
                        problem.window, engine);
  const auto count = [](const Desc& desc) { return desc.get_size() / sizeof(Bfloat16); };
  std::vector<Bfloat16> patches(count(made.patches), Bfloat16(99.0F));
  std::vector<Bfloat16> rotated(count(made.weight_rows), Bfloat16(99.0F));
  std::vector<Bfloat16> seen(count(made.source_rows), Bfloat16(99.0F));
  std::vector<Bfloat16> source(count(made.source), Bfloat16(99.0F));
  std::vector<std::byte> scratch(made.product.scratchpad_desc().get_size() + 1);
  const dnnl::memory gradient_memory(made.gradient, engine, gradient.data());
  const dnnl::memory weight_memory(made.weight, engine, weight.data());
  const dnnl::memory patches_memory(made.patches, engine, patches.data());
  const dnnl::memory rotated_memory(made.weight_rows, engine, rotated.data());
  const dnnl::memory seen_memory(made.source_rows, engine, seen.data());
  const bool skips = made.window.stride > 1;
  if (skips) {
    patches = gradient;
  } else {
    PatchesStep(gradient_memory, patches_memory, dims_of(made.source), made.window.rotated()).run();
  }
  RotateStep(weight_memory, rotated_memory).run();
  dnnl::matmul(made.product)
      .execute(stream, {{DNNL_ARG_SRC, dnnl::memory(made.patches, engine, patches.data())},
                        {DNNL_ARG_WEIGHTS, rotated_memory},
                        {DNNL_ARG_DST, seen_memory},
                        {DNNL_ARG_SCRATCHPAD,
                         dnnl::memory(made.product.scratchpad_desc(), engine, scratch.data())}});
  stream.wait();
  if (!skips) return seen;
  ScatterStep(seen_memory, dnnl::memory(made.source, engine, source.data()), dims_of(made.gradient),
              made.window)
      .run();
  return source;
}

std::vector<float> floats(const std::vector<Bfloat16>& values) {
  return {values.begin(), values.end()};
}

bool has_products() {
  const bool has = instruction_set().starts_with("avx512");
  if (!has) std::printf("skipped: no products of bf16 on this processor\n");
  return has;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_matrix_product_gives_the_weight_gradient) {
  if (!has_products()) return;
  for (const Problem& problem : problems) {
    BOOST_TEST_CONTEXT(problem.window.height << "x" << problem.window.width << ", stride "
                                             << problem.window.stride << ", size "
                                             << problem.size) {
      const auto source =
          numbers(problem.samples * problem.size * problem.size * problem.channels, 1);
      const auto gradient =
          numbers(problem.samples * problem.height() * problem.width() * problem.filters, 2);
      const std::vector<float> expected = by_definition(problem, source, gradient);
      BOOST_TEST(by_product(problem, source, gradient) == expected,
                 boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_matrix_product_gives_the_data_gradient) {
  if (!has_products()) return;
  for (const Problem& problem : {
           Problem{.samples = 3, .channels = 5, .size = 4, .filters = 7, .window = {}},
           Problem{.samples = 2, .channels = 32, .size = 7, .filters = 16, .window = {1, 1, 2, 0}},
           Problem{.samples = 2, .channels = 3, .size = 8, .filters = 24, .window = {1, 1, 2, 0}},
           Problem{.samples = 1, .channels = 8, .size = 8, .filters = 8, .window = {1, 1, 3, 0}},
           Problem{.samples = 2, .channels = 7, .size = 6, .filters = 4, .window = {3, 3, 1, 1}},
           Problem{.samples = 3, .channels = 2, .size = 5, .filters = 3, .window = {3, 3, 1, 0}},
           Problem{.samples = 1, .channels = 3, .size = 4, .filters = 2, .window = {5, 5, 1, 2}},
           Problem{.samples = 2, .channels = 3, .size = 3, .filters = 3, .window = {3, 3, 1, 2}},
       }) {
    BOOST_TEST_CONTEXT("stride " << problem.window.stride << ", size " << problem.size) {
      const auto gradient =
          numbers(problem.samples * problem.height() * problem.width() * problem.filters, 3);
      const auto weight = numbers(
          problem.filters * problem.channels * problem.window.height * problem.window.width, 4);
      BOOST_TEST(floats(data_by_product(problem, gradient, weight)) ==
                     data_by_definition(problem, gradient, weight),
                 boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(only_1x1_windows_of_stride_1_need_no_patches) {
  BOOST_TEST(Window{}.is_point());
  BOOST_TEST(!(Window{.stride = 2}.is_point()));
  BOOST_TEST(!(Window{.height = 3, .padding = 1}.is_point()));
  BOOST_TEST(!(Window{.padding = 1}.is_point()));
}
