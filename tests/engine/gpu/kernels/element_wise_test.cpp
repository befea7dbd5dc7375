#include "kernel_values.hpp"
#include "lockstep/graph/ops.hpp"

#include <cmath>
#include <limits>

using namespace lockstep::gpu;

namespace {

const std::vector<std::int64_t> counts{0, 1, 7, 8, 9, 1000, 70003};

Values random_values(DataType type, std::int64_t count, std::uint32_t which) {
  return random_matrix(type, {.rows = 1, .channels = count, .padded = count}, which);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(element_wise)

BOOST_AUTO_TEST_CASE(conversion_rounds_to_nearest_and_keeps_nan_and_infinity) {
  for (const DataType from : all_types) {
    for (const DataType to : all_types) {
      for (const std::int64_t count : counts) {
        Values x = random_values(from, count, 1);
        if (count > 8) {
          x.set(2, std::numeric_limits<double>::quiet_NaN());
          x.set(count - 1, -std::numeric_limits<double>::infinity());
        }
        Values y(to, count);
        Values expected(to, count);
        for (std::int64_t i = 0; i < count; ++i) expected.set(i, x[i]);

        convert(kernel_stream(), x.data(), from, y.data(), to, static_cast<std::size_t>(count));

        check_close(reader(y), reader(expected), count, DataType::f32, 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_may_be_in_place) {
  for (const DataType type : all_types) {
    for (const std::int64_t count : counts) {
      const Values left = random_values(type, count, 1);
      const Values right = random_values(type, count, 2);
      Values apart(type, count);
      Values in_place = right;

      add(kernel_stream(), type, left.data(), right.data(), apart.data(),
          static_cast<std::size_t>(count));
      add(kernel_stream(), type, left.data(), in_place.data(), in_place.data(),
          static_cast<std::size_t>(count));

      check_close(
          reader(apart), [&](std::int64_t i) { return left[i] + right[i]; }, count, type, 1e-7);
      BOOST_TEST((apart == in_place));
    }
  }
}

BOOST_AUTO_TEST_CASE(one_value_is_set) {
  Mirrored<float> values(3, 1.0F);

  set_value(kernel_stream(), 0.375F, values.data() + 1);

  BOOST_TEST((values.host() == std::vector<float>{1.0F, 0.375F, 1.0F}));
}

BOOST_AUTO_TEST_CASE(values_are_scaled) {
  for (const std::int64_t count : counts) {
    const Values x = random_values(DataType::f32, count, 1);
    Values y(DataType::f32, count);

    scale(kernel_stream(), static_cast<const float*>(x.data()), 0.25F,
          static_cast<float*>(y.data()), static_cast<std::size_t>(count));

    check_close(
        reader(y), [&](std::int64_t i) { return 0.25 * x[i]; }, count, DataType::f32, 0);
  }
}

BOOST_AUTO_TEST_CASE(relu_passes_positive_values_and_nan) {
  for (const DataType type : all_types) {
    for (const std::int64_t count : counts) {
      Values x = random_values(type, count, 1);
      if (count > 8) x.set(count - 1, std::numeric_limits<double>::quiet_NaN());
      Values y(type, count);

      ElementWise<lockstep::Relu>::forward(kernel_stream(), type, x.data(), y.data(),
                                           static_cast<std::size_t>(count));

      check_close(
          reader(y), [&](std::int64_t i) { return x[i] <= 0 ? 0.0 : x[i]; }, count, type, 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_gradient_of_relu_passes_where_the_value_is_positive) {
  for (const DataType type : all_types) {
    for (const std::int64_t count : counts) {
      const Values y = random_values(type, count, 1);
      const Values dy = random_values(type, count, 2);
      Values dx = dy;

      ElementWise<lockstep::Relu>::backward(kernel_stream(), type, y.data(), dx.data(), dx.data(),
                                            static_cast<std::size_t>(count));

      check_close(
          reader(dx), [&](std::int64_t i) { return y[i] > 0 ? dy[i] : 0.0; }, count, type, 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(gelu_and_its_gradient_are_the_exact_ones) {
  const auto probability = [](double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; };
  const auto slope = [&](double x) {
    return probability(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  };
  for (const DataType type : all_types) {
    for (const std::int64_t count : counts) {
      Values x = random_values(type, count, 1);
      if (count > 8) x.set(count - 1, std::numeric_limits<double>::quiet_NaN());
      if (count > 8) x.set(2, 0);
      const Values dy = random_values(type, count, 2);
      Values y(type, count);
      Values dx = dy;

      ElementWise<lockstep::Gelu>::forward(kernel_stream(), type, x.data(), y.data(),
                                           static_cast<std::size_t>(count));
      ElementWise<lockstep::Gelu>::backward(kernel_stream(), type, x.data(), dx.data(), dx.data(),
                                            static_cast<std::size_t>(count));

      check_close(
          reader(y), [&](std::int64_t i) { return x[i] * probability(x[i]); }, count, type, 1e-6);
      check_close(
          reader(dx), [&](std::int64_t i) { return dy[i] * slope(x[i]); }, count, type, 2e-6);
      if (count > 8) BOOST_TEST(y[2] == 0.0);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
