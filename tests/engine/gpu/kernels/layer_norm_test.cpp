#include "kernel_values.hpp"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

using namespace lockstep::gpu;

namespace {

constexpr double eps = 1e-3;

/// The definition in double precision.
struct Expected {
  std::vector<double> y, dx, weight, bias;
};
Expected expected(const Matrix& extent, const Values& x, const Values& dy,
                  const Mirrored<float>& weight, const Mirrored<float>& bias) {
  const auto channels = static_cast<double>(extent.channels);
  const auto values = static_cast<std::size_t>(extent.rows * extent.padded);
  const auto padded = static_cast<std::size_t>(extent.padded);
  Expected result{.y = std::vector<double>(values),
                  .dx = std::vector<double>(values),
                  .weight = std::vector<double>(padded),
                  .bias = std::vector<double>(padded)};
  for (std::int64_t row = 0; row < extent.rows; ++row) {
    const std::int64_t first = row * extent.padded;
    const auto mean_of = [&](const std::function<double(std::int64_t)>& value) {
      double sum = 0;
      for (std::int64_t c = 0; c < extent.channels; ++c) sum += value(c);
      return sum / channels;
    };
    const double mean = mean_of([&](std::int64_t c) { return x[first + c]; });
    const double variance =
        mean_of([&](std::int64_t c) { return std::pow(x[first + c] - mean, 2); });
    const double factor = 1 / std::sqrt(variance + eps);
    const auto scale = [&](std::int64_t c) { return double{weight[static_cast<std::size_t>(c)]}; };
    const auto n = [&](std::int64_t c) { return (x[first + c] - mean) * factor; };
    const auto g = [&](std::int64_t c) { return dy[first + c] * scale(c); };
    const double mean_g = mean_of(g);
    const double mean_product = mean_of([&](std::int64_t c) { return g(c) * n(c); });
    for (std::int64_t c = 0; c < extent.channels; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const auto at = static_cast<std::size_t>(first + c);
      result.y[at] = n(c) * scale(c) + double{bias[channel]};
      result.dx[at] = (g(c) - mean_g - n(c) * mean_product) * factor;
      result.weight[channel] += dy[first + c] * n(c);
      result.bias[channel] += dy[first + c];
    }
  }
  return result;
}

/// Values whose mean is much larger than their deviation.
Values shifted_matrix(DataType type, const Matrix& extent) {
  Values x = random_matrix(type, extent, 1);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const bool is_padding = i % extent.padded >= extent.channels;
    if (!is_padding) x.set(i, x[i] + 100);
  }
  return x;
}

/// Matrices whose rows have fewer and more vec8 columns than lanes, and more than a few blocks.
std::vector<Matrix> extents() {
  std::vector<Matrix> result = matrices();
  result.push_back(matrix(3, 768));
  result.push_back(matrix(70, 1025));
  return result;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layer_norm)

BOOST_AUTO_TEST_CASE(values_and_gradients_are_those_of_the_definition) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : extents()) {
      BOOST_TEST_CONTEXT(type << ", " << extent) {
        const auto rows = static_cast<std::size_t>(extent.rows);
        const std::int64_t count = extent.rows * extent.padded;
        const Values x = shifted_matrix(type, extent);
        const Values dy = random_matrix(type, extent, 2);
        const Mirrored<float> weight = random_channels(extent, 3, 1);
        const Mirrored<float> bias = random_channels(extent, 4, 0.5);
        Mirrored<float> statistics(2 * rows, std::numeric_limits<float>::quiet_NaN());
        const RowStatistics kept{.means = statistics.data(),
                                 .inverse_deviations = statistics.data() + rows};
        Values y = x;
        Values dx = dy;
        Mirrored<float> weight_gradient = random_channels(extent, 5, 0);
        Mirrored<float> bias_gradient = weight_gradient;
        const Mirrored<float> before = weight_gradient;
        Mirrored<float> workspace(reduction_workspace(extent) / sizeof(float),
                                  std::numeric_limits<float>::quiet_NaN());

        layer_norm_forward(kernel_stream(), type, extent, y.data(),
                           {.weight = weight.data(), .bias = bias.data(), .eps = float{eps}}, kept,
                           y.data());
        layer_norm_parameter_gradients(
            kernel_stream(), type, extent, x.data(), dy.data(), kept,
            {.weight = weight_gradient.data(), .bias = bias_gradient.data(), .adds = true},
            workspace.data());
        layer_norm_backward(kernel_stream(), type, extent, x.data(), dx.data(), weight.data(), kept,
                            dx.data());

        const Expected exact = expected(extent, x, dy, weight, bias);
        // A value near 100 is rounded at 4e-6 and divided by a deviation of about 1, or, of a row
        // with few channels, by a smaller one.
        const double slack = extent.channels < 8 ? 1e-3 : 1e-4;
        check_close(reader(y), reader(exact.y), count, type, slack);
        check_close(reader(dx), reader(exact.dx), count, type, 10 * slack);
        const auto after = [&](const std::vector<double>& gradient) {
          return [&](std::int64_t c) {
            return gradient[static_cast<std::size_t>(c)] +
                   double{before[static_cast<std::size_t>(c)]};
          };
        };
        const double sum_slack = 1e-5 * static_cast<double>(extent.rows) + slack;
        check_close(reader(weight_gradient), after(exact.weight), extent.padded, DataType::f32,
                    sum_slack);
        check_close(reader(bias_gradient), after(exact.bias), extent.padded, DataType::f32,
                    sum_slack);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(padding_stays_zero_where_a_row_is_infinite) {
  const Matrix extent = matrix(2, 5);
  for (const DataType type : all_types) {
    Values x = random_matrix(type, extent, 1);
    x.set(1, std::numeric_limits<double>::infinity());
    const Mirrored<float> weight = random_channels(extent, 3, 1);
    Mirrored<float> statistics(4, 0.0F);
    const RowStatistics kept{.means = statistics.data(),
                             .inverse_deviations = statistics.data() + 2};
    Values y(type, x.size());
    Values dx(type, x.size());

    layer_norm_forward(kernel_stream(), type, extent, x.data(),
                       {.weight = weight.data(), .bias = weight.data(), .eps = float{eps}}, kept,
                       y.data());
    layer_norm_backward(kernel_stream(), type, extent, x.data(), x.data(), weight.data(), kept,
                        dx.data());

    BOOST_TEST(std::isnan(y[0]));
    for (std::int64_t i = 0; i < x.size(); ++i) {
      if (i % extent.padded < extent.channels) continue;
      BOOST_TEST(y[i] == 0.0);
      BOOST_TEST(dx[i] == 0.0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
