#include "../../../../src/engine/gpu/kernels/pooled_norm.hpp"
#include "../../../../src/engine/gpu/kernels/divisor.hpp"
#include "kernel_values.hpp"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <limits>

using namespace lockstep::gpu;

namespace {

struct Case {
  std::int64_t batch;
  std::int64_t height;
  std::int64_t width;
  std::int64_t channels;
};
PoolExtent extent_of(const Case& c) {
  return {.batch = c.batch,
          .height = c.height,
          .width = c.width,
          .out_height = (c.height + 1) / 2,
          .out_width = (c.width + 1) / 2,
          .padded = padded_channels(c.channels),
          .kernel = 3,
          .stride = 2,
          .padding = 1};
}
/// Even and odd sizes, one pixel, one row, one column; several blocks.
constexpr std::initializer_list<Case> cases{{1, 1, 1, 3},   {2, 1, 4, 17}, {2, 5, 1, 8},
                                            {3, 2, 2, 4},   {2, 5, 8, 12}, {2, 8, 7, 33},
                                            {3, 37, 30, 64}};

/// Few distinct values, so that many are equal, and some for which the norms differ in the last
/// bits only; a few NaN, infinities, zeros of both signs and values that are rounded to 0.
Values input(DataType type, const Matrix& extent) {
  Values x = random_matrix(type, extent, 41);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < x.size(); ++i) {
    if (i % extent.padded >= extent.channels) continue;
    if (i % 3 != 0) x.set(i, std::round(x[i] * 2) / 2);
    switch (i % 211) {
      case 7:
        x.set(i, std::numeric_limits<double>::quiet_NaN());
        break;
      case 31:
        x.set(i, infinity);
        break;
      case 53:
        x.set(i, -infinity);
        break;
      case 101:
        x.set(i, -0.0);
        break;
      default:
        break;
    }
  }
  return x;
}

/// A normalisation and its arrays. Weights of both signs; in some channels, all outputs are below
/// the smallest values of 16 bits, or above the largest.
struct Norm {
  explicit Norm(const Matrix& extent)
      : mean(random_channels(extent, 51, 0)),
        inverse_deviation(random_channels(extent, 52, 2)),
        weight(random_channels(extent, 53, 1)),
        bias(random_channels(extent, 54, 0)) {
    for (std::size_t c = 0; c < weight.size(); ++c) {
      float& value = weight.host()[c];
      if (c % 5 == 1) value = -value;
      if (c % 7 == 2) {
        value *= 1e-9F;
        bias.host()[c] = 0;
        mean.host()[c] = 0;
      }
      if (c % 7 == 3) value *= 1e-39F;
      if (c % 7 == 4) value *= 1e5F;
    }
  }
  [[nodiscard]] Normalization view() const {
    return {.mean = mean.data(),
            .inverse_deviation = inverse_deviation.data(),
            .weight = weight.data(),
            .bias = bias.data()};
  }
  Mirrored<float> mean;
  Mirrored<float> inverse_deviation;
  Mirrored<float> weight;
  Mirrored<float> bias;
};

/// The results of either way.
struct Results {
  Results(DataType type, const Matrix& in, std::int64_t outputs)
      : y(type, outputs),
        dx(type, in.rows * in.padded),
        weight(static_cast<std::size_t>(in.padded), NAN),
        bias(weight),
        kept_weight(weight.size(), 0.5F),
        kept_bias(weight.size(), -0.25F),
        workspace(poisoned_bytes(reduction_workspace(in))) {}
  [[nodiscard]] NormSums sums(const Values& x, const Norm& norm) {
    return {.x = x.data(),
            .norm = norm.view(),
            .weight = weight.data(),
            .bias = bias.data(),
            .kept = {.weight = kept_weight.data(), .bias = kept_bias.data(), .adds = true}};
  }
  [[nodiscard]] NormGradient gradient(const Values& x, const Norm& norm) {
    return {.x = x.data(),
            .norm = norm.view(),
            .weight_gradient = weight.data(),
            .bias_gradient = bias.data(),
            .dx = dx.data()};
  }
  Values y;
  Values dx;
  Mirrored<float> weight;
  Mirrored<float> bias;
  Mirrored<float> kept_weight;
  Mirrored<float> kept_bias;
  Mirrored<std::byte> workspace;
};
/// Equal to the bit; NaN may have any.
template <typename Array>
void check_same(const char* name, const Array& actual, const Array& expected) {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(expected.size()); ++i) {
    const double got = reader(actual)(i);
    const double want = reader(expected)(i);
    const bool same =
        std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want);
    if (!same) {
      BOOST_ERROR(name << " " << i << " is " << got << ", not " << want);
      return;
    }
  }
}

void check_case(DataType type, const Case& c, bool with_nan) {
  const PoolExtent extent = extent_of(c);
  const Matrix in{
      .rows = c.batch * c.height * c.width, .channels = c.channels, .padded = extent.padded};
  const Matrix out{.rows = c.batch * extent.out_height * extent.out_width,
                   .channels = c.channels,
                   .padded = extent.padded};
  const std::int64_t outputs = out.rows * out.padded;
  const Values x = with_nan ? input(type, in) : random_matrix(type, in, 43);
  const Values dy = random_matrix(type, out, 42);
  const Norm norm(in);
  const auto elements = static_cast<double>(in.rows);

  Results separate(type, in, outputs);
  {
    Values full(type, in.rows * in.padded);
    Values gradient(type, in.rows * in.padded);
    Mirrored<std::uint8_t> mask(static_cast<std::size_t>((in.rows * in.padded + 7) / 8), 0xAA);
    Mirrored<std::uint8_t> index(static_cast<std::size_t>(outputs), 0xFF);
    batch_norm_apply(kernel_stream(), type, in, x.data(), norm.view(),
                     {.relu = true, .mask = mask.data()}, full.data());
    max_pool_forward(kernel_stream(), type, extent, full.data(), separate.y.data(), index.data());
    max_pool_backward(kernel_stream(), type, extent, dy.data(), index.data(), gradient.data());
    batch_norm_backward_sums(kernel_stream(), type, in, {.dy = gradient.data()}, mask.data(),
                             separate.sums(x, norm), nullptr, separate.workspace.data());
    batch_norm_backward_apply(kernel_stream(), type, in, gradient.data(), mask.data(), elements,
                              separate.gradient(x, norm), nullptr, nullptr);
    kernel_device().synchronize();
  }

  Results fused(type, in, outputs);
  Values y_alone(type, outputs);
  Mirrored<std::uint8_t> positions(static_cast<std::size_t>(outputs), 0xFF);
  pooled_norm_forward(kernel_stream(), type, extent, x.data(), norm.view(), fused.y.data(),
                      positions.data());
  pooled_norm_forward(kernel_stream(), type, extent, x.data(), norm.view(), y_alone.data(),
                      nullptr);
  const PooledGradient incoming{.dy = dy.data(), .positions = positions.data()};
  pooled_norm_backward_sums(kernel_stream(), type, extent, incoming, fused.sums(x, norm),
                            fused.workspace.data());
  pooled_norm_backward_apply(kernel_stream(), type, extent, incoming, elements,
                             fused.gradient(x, norm));

  check_same("y", fused.y, separate.y);
  BOOST_TEST((y_alone == fused.y));
  check_same("weight gradient", fused.weight, separate.weight);
  check_same("bias gradient", fused.bias, separate.bias);
  check_same("kept weight gradient", fused.kept_weight, separate.kept_weight);
  check_same("kept bias gradient", fused.kept_bias, separate.kept_bias);
  check_same("dx", fused.dx, separate.dx);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pooled_norm)

BOOST_AUTO_TEST_CASE(one_pass_gives_the_bits_of_separate_kernels) {
  for (const DataType type : all_types) {
    for (const Case& c : cases) {
      for (const bool with_nan : {false, true}) {
        BOOST_TEST_CONTEXT(fmt::format("{} images of {} x {} x {}, {} bytes a value{}", c.batch,
                                       c.height, c.width, c.channels, size_of(type),
                                       with_nan ? ", with NaN" : "")) {
          check_case(type, c, with_nan);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(divisors_divide) {
  constexpr std::uint32_t largest = std::numeric_limits<std::uint32_t>::max();
  for (const std::uint32_t by : {1U, 2U, 3U, 7U, 56U, 112U, 641U, 65537U, 1U << 31, largest}) {
    const Divisor divisor(by);
    for (const std::uint32_t near : {0U, by, 6 * by, 12543U * by, 1U << 31, largest - 1}) {
      for (const std::uint32_t number : {near - 1, near, near + 1}) {
        BOOST_TEST(divisor.quotient(number) == number / by, number << " / " << by);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
