#include "kernel_values.hpp"

#include <bit>
#include <limits>
#include <utility>

using namespace lockstep::gpu;

namespace {

constexpr float eps = 1e-5F;

struct Statistics {
  Mirrored<float> mean;
  Mirrored<float> variance;
  Mirrored<float> inverse_deviation;
  friend bool operator==(const Statistics&, const Statistics&) = default;
};
Statistics statistics_of(const Values& x, const Matrix& extent) {
  const auto padded = static_cast<std::size_t>(extent.padded);
  const Mirrored<float> poison(padded, NAN);
  Statistics result{poison, poison, poison};
  Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent));
  batch_norm_statistics(kernel_stream(), x.type(), extent, x.data(),
                        {.mean = result.mean.data(),
                         .variance = result.variance.data(),
                         .inverse_deviation = result.inverse_deviation.data(),
                         .eps = eps},
                        workspace.data());
  return result;
}

/// Computed in double, in two passes.
struct Moments {
  double mean = 0;
  double variance = 0;
};
Moments moments_of(const Values& x, const Matrix& extent, std::int64_t channel) {
  const auto rows = static_cast<double>(extent.rows);
  Moments result;
  for (std::int64_t r = 0; r < extent.rows; ++r) result.mean += x[r * extent.padded + channel];
  result.mean /= rows;
  for (std::int64_t r = 0; r < extent.rows; ++r) {
    const double distance = x[r * extent.padded + channel] - result.mean;
    result.variance += distance * distance;
  }
  result.variance /= rows;
  return result;
}

/// A normalisation and its arrays.
struct Norm {
  explicit Norm(const Matrix& extent, int seed = 31)
      : mean(random_channels(extent, seed, 0)),
        inverse_deviation(random_channels(extent, seed + 1, 2)),
        weight(random_channels(extent, seed + 2, 1)),
        bias(random_channels(extent, seed + 3, 0)) {
    for (float& value : inverse_deviation.host()) value = 1 / std::sqrt(value + eps);
  }
  [[nodiscard]] Normalization view() const {
    return {.mean = mean.data(),
            .inverse_deviation = inverse_deviation.data(),
            .weight = weight.data(),
            .bias = bias.data()};
  }
  [[nodiscard]] double deviation(std::int64_t channel) const {
    return 1 / static_cast<double>(inverse_deviation[static_cast<std::size_t>(channel)]);
  }
  [[nodiscard]] double normalized(double x, std::int64_t channel) const {
    return (x - static_cast<double>(mean[static_cast<std::size_t>(channel)])) / deviation(channel);
  }
  Mirrored<float> mean;
  Mirrored<float> inverse_deviation;
  Mirrored<float> weight;
  Mirrored<float> bias;
};

using Mask = Mirrored<std::uint8_t>;
Mask poisoned_mask(const Matrix& extent) {
  return Mask(static_cast<std::size_t>((extent.rows * extent.padded + 7) / 8), 0xAA);
}
Mask random_mask(const Matrix& extent) {
  Random random(41);
  Mask mask = poisoned_mask(extent);
  for (std::uint8_t& byte : mask.host())
    byte = static_cast<std::uint8_t>(std::lround(random() * 99));
  return mask;
}
bool bit(const Mask& mask, std::int64_t i) {
  return (mask[static_cast<std::size_t>(i / 8)] >> (i % 8) & 1) != 0;
}

/// With so many rows, a thread of the element-wise kernels processes several rows of any type.
Matrix many_rows() {
  return matrix(131101, 64);
}

void check_apply(DataType type, const Matrix& extent, bool with_residual, bool relu) {
  const Values x = random_matrix(type, extent, 1);
  const Values residual = random_matrix(type, extent, 2);
  const Norm norm(extent);
  Values y(type, x.size());
  Mask mask = poisoned_mask(extent);

  batch_norm_apply(
      kernel_stream(), type, extent, x.data(), norm.view(),
      {.residual = with_residual ? residual.data() : nullptr, .relu = relu, .mask = mask.data()},
      y.data());

  const auto expected = [&](std::int64_t i) {
    const std::int64_t c = i % extent.padded;
    const auto at = static_cast<std::size_t>(c);
    double value = norm.normalized(x[i], c) * static_cast<double>(norm.weight[at]) +
                   static_cast<double>(norm.bias[at]) + (with_residual ? residual[i] : 0.0);
    return relu && value < 0 ? 0.0 : value;
  };
  check_close(reader(y), expected, y.size(), type, 4e-6);
  bool mask_is_right = true;
  for (std::int64_t i = 0; i < y.size(); ++i) {
    mask_is_right = mask_is_right && bit(mask, i) == (y[i] > 0);
    if (i % extent.padded >= extent.channels && y[i] != 0) {
      BOOST_ERROR("padding is " << y[i]);
      return;
    }
  }
  BOOST_TEST(mask_is_right);
}

struct Gradients {
  Mirrored<float> weight;
  Mirrored<float> bias;
  friend bool operator==(const Gradients&, const Gradients&) = default;
};
Gradients backward_sums(const Values& x, const Values& dy, const Mask* mask, const Norm& norm,
                        const Matrix& extent) {
  const auto padded = static_cast<std::size_t>(extent.padded);
  Gradients result{Mirrored<float>(padded, NAN), Mirrored<float>(padded, NAN)};
  Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent));
  const auto run = [&](const KeptGradients& kept) {
    batch_norm_backward_sums(kernel_stream(), x.type(), extent, {.dy = dy.data()},
                             mask == nullptr ? nullptr : mask->data(),
                             {.x = x.data(),
                              .norm = norm.view(),
                              .weight = result.weight.data(),
                              .bias = result.bias.data(),
                              .kept = kept},
                             nullptr, workspace.data());
  };
  run({});
  Gradients kept{Mirrored<float>(padded, NAN), Mirrored<float>(padded, NAN)};
  run({.weight = kept.weight.data(), .bias = kept.bias.data(), .adds = false});
  BOOST_TEST((kept == result));
  run({.weight = kept.weight.data(), .bias = kept.bias.data(), .adds = true});
  bool added = true;
  for (std::size_t c = 0; c < padded; ++c) {
    added = added && kept.weight[c] == 2 * result.weight[c] && kept.bias[c] == 2 * result.bias[c];
  }
  BOOST_TEST(added);
  return result;
}

/// The sums of a gradient in two parts must equal those of the parts added before. The kept
/// gradient must be the sum behind the ReLU, also in place of either part.
void check_joined_sums(DataType type, const Matrix& extent, bool masked) {
  const Values x = random_matrix(type, extent, 1);
  const Values left = random_matrix(type, extent, 2);
  const Values right = random_matrix(type, extent, 3);
  const Norm norm(extent);
  const Mask mask = random_mask(extent);
  const Mask* const used = masked ? &mask : nullptr;
  Values sum(type, x.size());
  add(kernel_stream(), type, left.data(), right.data(), sum.data(),
      static_cast<std::size_t>(x.size()));
  const Gradients expected = backward_sums(x, sum, used, norm, extent);
  for (std::int64_t i = 0; i < sum.size(); ++i) {
    if (masked && !bit(mask, i)) sum.set(i, 0);
  }

  const auto padded = static_cast<std::size_t>(extent.padded);
  const auto check = [&](const Values& dy, const Values& other, Values& kept) {
    Gradients sums{Mirrored<float>(padded, NAN), Mirrored<float>(padded, NAN)};
    Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent));
    batch_norm_backward_sums(kernel_stream(), type, extent,
                             {.dy = dy.data(), .other = other.data(), .masked = kept.data()},
                             masked ? mask.data() : nullptr,
                             {.x = x.data(),
                              .norm = norm.view(),
                              .weight = sums.weight.data(),
                              .bias = sums.bias.data()},
                             nullptr, workspace.data());
    BOOST_TEST((sums == expected));
    BOOST_TEST((kept == sum));
  };
  Values apart(type, x.size());
  check(left, right, apart);
  Values first = left;
  check(first, right, first);
  Values second = right;
  check(left, second, second);
}

void check_backward_apply(DataType type, const Matrix& extent, bool masked) {
  const Values x = random_matrix(type, extent, 1);
  const Values dy = random_matrix(type, extent, 2);
  const Norm norm(extent);
  const Mirrored<float> weight_gradient = random_channels(extent, 5, 20);
  const Mirrored<float> bias_gradient = random_channels(extent, 6, -10);
  const Mask mask = random_mask(extent);
  const double elements = 50;
  Values dx(type, x.size());
  Values dz(type, x.size());

  const auto run = [&](void* to_dx, const void* from_dy, void* to_dz) {
    batch_norm_backward_apply(kernel_stream(), type, extent, from_dy,
                              masked ? mask.data() : nullptr, elements,
                              {.x = x.data(),
                               .norm = norm.view(),
                               .weight_gradient = weight_gradient.data(),
                               .bias_gradient = bias_gradient.data(),
                               .dx = to_dx},
                              nullptr, to_dz);
  };
  run(dx.data(), dy.data(), masked ? dz.data() : nullptr);

  const auto g = [&](std::int64_t i) { return masked && !bit(mask, i) ? 0.0 : dy[i]; };
  const auto expected = [&](std::int64_t i) {
    const std::int64_t c = i % extent.padded;
    const auto at = static_cast<std::size_t>(c);
    return static_cast<double>(norm.weight[at]) / norm.deviation(c) *
           (g(i) - static_cast<double>(bias_gradient[at]) / elements -
            norm.normalized(x[i], c) * static_cast<double>(weight_gradient[at]) / elements);
  };
  check_close(reader(dx), expected, dx.size(), type, 4e-6);
  Values in_place = dy;
  run(in_place.data(), in_place.data(), nullptr);
  BOOST_TEST((in_place == dx));
  if (!masked) return;
  check_close(reader(dz), g, dz.size(), type, 0);
  Values masked_in_place = dy;
  Values other(type, x.size());
  run(other.data(), masked_in_place.data(), masked_in_place.data());
  BOOST_TEST((other == dx && masked_in_place == dz));
}

/// A norm that is fused with the norm it is added to must give the same bits as two separate norms.
void check_added_norm(DataType type, const Matrix& extent, bool relu, bool joins) {
  const Values x = random_matrix(type, extent, 1);
  const Values added_x = random_matrix(type, extent, 2);
  const Norm norm(extent);
  const Norm added(extent, 51);
  Values addend(type, x.size());
  Values apart(type, x.size());
  Values together(type, x.size());
  Mask mask = poisoned_mask(extent);
  Mask mask_apart = mask;

  batch_norm_apply(kernel_stream(), type, extent, added_x.data(), added.view(), {}, addend.data());
  batch_norm_apply(kernel_stream(), type, extent, x.data(), norm.view(),
                   {.residual = addend.data(), .relu = relu, .mask = mask_apart.data()},
                   apart.data());
  const Normalization view = added.view();
  batch_norm_apply(
      kernel_stream(), type, extent, x.data(), norm.view(),
      {.residual = added_x.data(), .residual_norm = &view, .relu = relu, .mask = mask.data()},
      together.data());
  BOOST_TEST((together == apart && mask == mask_apart));

  const Values left = random_matrix(type, extent, 3);
  const Values right = random_matrix(type, extent, 4);
  Values dy = left;
  if (joins) {
    add(kernel_stream(), type, left.data(), right.data(), dy.data(),
        static_cast<std::size_t>(x.size()));
  }
  const Mask* const used = relu ? &mask : nullptr;
  const Gradients expected = backward_sums(x, dy, used, norm, extent);
  const Gradients expected_added = backward_sums(added_x, dy, used, added, extent);
  const auto padded = static_cast<std::size_t>(extent.padded);
  Gradients sums{Mirrored<float>(padded, NAN), Mirrored<float>(padded, NAN)};
  Gradients sums_added = sums;
  Gradients kept = sums;
  Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent, 2));
  Values g = left;
  const NormSums of_added{
      .x = added_x.data(),
      .norm = added.view(),
      .weight = sums_added.weight.data(),
      .bias = sums_added.bias.data(),
      .kept = {.weight = kept.weight.data(), .bias = kept.bias.data(), .adds = false}};
  batch_norm_backward_sums(
      kernel_stream(), type, extent,
      {.dy = left.data(),
       .other = joins ? right.data() : nullptr,
       .masked = joins ? g.data() : nullptr},
      relu ? mask.data() : nullptr,
      {.x = x.data(), .norm = norm.view(), .weight = sums.weight.data(), .bias = sums.bias.data()},
      &of_added, workspace.data());
  BOOST_TEST((sums == expected && sums_added == expected_added && kept == expected_added));

  const double elements = 50;
  const auto gradient = [&](const Values& of, const Norm& by, const Gradients& its, Values& dx) {
    return NormGradient{.x = of.data(),
                        .norm = by.view(),
                        .weight_gradient = its.weight.data(),
                        .bias_gradient = its.bias.data(),
                        .dx = dx.data()};
  };
  Values dx_apart(type, x.size());
  Values added_apart(type, x.size());
  const std::uint8_t* const behind = relu ? mask.data() : nullptr;
  batch_norm_backward_apply(kernel_stream(), type, extent, dy.data(), behind, elements,
                            gradient(x, norm, sums, dx_apart), nullptr, nullptr);
  batch_norm_backward_apply(kernel_stream(), type, extent, dy.data(), behind, elements,
                            gradient(added_x, added, sums_added, added_apart), nullptr, nullptr);
  Values added_dx(type, x.size());
  const NormGradient other = gradient(added_x, added, sums_added, added_dx);
  // In place; a sum of two gradients is already masked.
  batch_norm_backward_apply(kernel_stream(), type, extent, g.data(), joins ? nullptr : behind,
                            elements, gradient(x, norm, sums, g), &other, nullptr);
  BOOST_TEST((g == dx_apart && added_dx == added_apart));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(batch_norm)

BOOST_AUTO_TEST_CASE(statistics_match_two_passes_in_double) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      BOOST_TEST_CONTEXT(type << ", " << extent) {
        const Values x = random_matrix(type, extent, 1);

        const Statistics statistics = statistics_of(x, extent);

        const auto mean = [&](std::int64_t c) { return moments_of(x, extent, c).mean; };
        const auto variance = [&](std::int64_t c) { return moments_of(x, extent, c).variance; };
        check_close(reader(statistics.mean), mean, extent.padded, DataType::f32, 1e-6);
        check_close(reader(statistics.variance), variance, extent.padded, DataType::f32, 2e-6);
        for (std::int64_t c = extent.channels; c < extent.padded; ++c) {
          BOOST_TEST(statistics.mean[static_cast<std::size_t>(c)] == 0);
          BOOST_TEST(statistics.variance[static_cast<std::size_t>(c)] == 0);
        }
        const auto inverse = [&](std::int64_t c) {
          return 1 / std::sqrt(variance(c) + double{eps});
        };
        check_close(reader(statistics.inverse_deviation), inverse, extent.channels, DataType::f32,
                    2e-6);
        BOOST_TEST((statistics_of(x, extent) == statistics));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_large_mean_does_not_reduce_the_accuracy_of_the_variance) {
  for (const Matrix& extent : matrices()) {
    BOOST_TEST_CONTEXT(extent) {
      Values x = random_matrix(DataType::f32, extent, 1);
      for (std::int64_t i = 0; i < x.size(); ++i) {
        if (i % extent.padded < extent.channels) x.set(i, 1000 + x[i]);
      }

      const Statistics statistics = statistics_of(x, extent);

      for (std::int64_t c = 0; c < extent.channels; ++c) {
        const Moments moments = moments_of(x, extent, c);
        const auto at = static_cast<std::size_t>(c);
        // One unit in the last place of a mean near 1000.
        BOOST_TEST(std::abs(static_cast<double>(statistics.mean[at]) - moments.mean) < 6.2e-5);
        BOOST_TEST(std::abs(static_cast<double>(statistics.variance[at]) - moments.variance) <=
                   1e-5 * moments.variance);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(equal_values_have_no_variance) {
  const Matrix extent = matrix(1001, 5);
  Values x(DataType::f32, extent.rows * extent.padded);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, i % extent.padded < 5 ? 0.1 : 0.0);

  const Statistics statistics = statistics_of(x, extent);

  BOOST_TEST(statistics.mean[4] == 0.1F);
  BOOST_TEST(statistics.variance[4] == 0.0F);
}

BOOST_AUTO_TEST_CASE(nan_affects_only_its_channel) {
  for (const DataType type : all_types) {
    const Matrix extent = matrix(601, 12);
    Values x = random_matrix(type, extent, 1);
    x.set(600 * extent.padded + 9, std::numeric_limits<double>::quiet_NaN());

    const Statistics statistics = statistics_of(x, extent);

    for (std::size_t c = 0; c < 12; ++c) {
      BOOST_TEST(std::isnan(statistics.mean[c]) == (c == 9));
      BOOST_TEST(std::isnan(statistics.variance[c]) == (c == 9));
      BOOST_TEST(std::isnan(statistics.inverse_deviation[c]) == (c == 9));
    }
  }
}

BOOST_AUTO_TEST_CASE(normalisation_follows_the_formula_and_masks_positive_values) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      for (const bool with_residual : {false, true}) {
        for (const bool relu : {false, true}) {
          BOOST_TEST_CONTEXT(type << ", " << extent << ", residual " << with_residual << ", ReLU "
                                  << relu) {
            check_apply(type, extent, with_residual, relu);
          }
        }
      }
    }
    BOOST_TEST_CONTEXT(type << ", many rows") {
      check_apply(type, many_rows(), true, true);
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_of_gradients_match_sums_in_double) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      for (const bool masked : {false, true}) {
        BOOST_TEST_CONTEXT(type << ", " << extent << ", mask " << masked) {
          const Values x = random_matrix(type, extent, 1);
          const Values dy = random_matrix(type, extent, 2);
          const Norm norm(extent);
          const Mask mask = random_mask(extent);

          const Gradients sums = backward_sums(x, dy, masked ? &mask : nullptr, norm, extent);

          std::vector<double> weight(static_cast<std::size_t>(extent.padded));
          std::vector<double> bias(weight.size());
          for (std::int64_t i = 0; i < x.size(); ++i) {
            const std::int64_t c = i % extent.padded;
            if (c >= extent.channels || (masked && !bit(mask, i))) continue;
            weight[static_cast<std::size_t>(c)] += dy[i] * norm.normalized(x[i], c);
            bias[static_cast<std::size_t>(c)] += dy[i];
          }
          // fp32 sums, by lanes, of numbers of magnitude one.
          const double slack = 1e-6 * std::sqrt(static_cast<double>(extent.rows));
          check_close(reader(sums.weight), reader(weight), extent.padded, DataType::f32, slack);
          check_close(reader(sums.bias), reader(bias), extent.padded, DataType::f32, slack);
          const Gradients again = backward_sums(x, dy, masked ? &mask : nullptr, norm, extent);
          BOOST_TEST((again == sums));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_gradient_in_two_parts_is_added_and_masked) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      for (const bool masked : {false, true}) {
        BOOST_TEST_CONTEXT(type << ", " << extent << ", mask " << masked) {
          check_joined_sums(type, extent, masked);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_gradient_of_x_follows_the_formula_also_in_place) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      for (const bool masked : {false, true}) {
        BOOST_TEST_CONTEXT(type << ", " << extent << ", mask " << masked) {
          check_backward_apply(type, extent, masked);
        }
      }
    }
    BOOST_TEST_CONTEXT(type << ", many rows") {
      check_backward_apply(type, many_rows(), true);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_fused_norm_has_the_same_bits_as_a_separate_norm) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      for (const bool relu : {false, true}) {
        for (const bool joins : {false, true}) {
          BOOST_TEST_CONTEXT(type << ", " << extent << ", ReLU " << relu << ", joins " << joins) {
            check_added_norm(type, extent, relu, joins);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_bias_is_added_to_every_row) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      BOOST_TEST_CONTEXT(type << ", " << extent) {
        const Values before = random_matrix(type, extent, 1);
        const Mirrored<float> bias = random_channels(extent, 7, 1);
        Values y = before;

        add_bias(kernel_stream(), type, extent, bias.data(), y.data());

        const auto expected = [&](std::int64_t i) {
          return before[i] + static_cast<double>(bias[static_cast<std::size_t>(i % extent.padded)]);
        };
        check_close(reader(y), expected, y.size(), type, 1e-6);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_are_summed) {
  for (const DataType type : all_types) {
    for (const Matrix& extent : matrices()) {
      BOOST_TEST_CONTEXT(type << ", " << extent) {
        const Values dy = random_matrix(type, extent, 1);
        Mirrored<float> sums(static_cast<std::size_t>(extent.padded), NAN);
        Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent));

        sum_rows(kernel_stream(), type, extent, dy.data(), sums.data(), workspace.data());

        std::vector<double> expected(sums.size());
        for (std::int64_t i = 0; i < dy.size(); ++i) {
          expected[static_cast<std::size_t>(i % extent.padded)] += dy[i];
        }
        const double slack = 1e-6 * std::sqrt(static_cast<double>(extent.rows));
        check_close(reader(sums), reader(expected), extent.padded, DataType::f32, slack);
      }
    }
  }
}

// Checkpoints of a class depend on it.
BOOST_AUTO_TEST_CASE(each_class_of_gpus_keeps_its_order_of_sums) {
  struct Case {
    GpuClass gpu;
    std::uint64_t digest;
  };
  for (const auto& [gpu, digest] :
       {Case{GpuClass::sm_80, 7949377299087287362U}, Case{GpuClass::sm_90, 375215189651583907U},
        Case{GpuClass::sm_100, 11469179281098782536U}}) {
    BOOST_TEST_CONTEXT(to_string(gpu)) {
      Matrix extent = matrix(1776, 2048);
      extent.gpu = gpu;
      const Values dy = random_matrix(DataType::f32, extent, 1);
      Mirrored<float> sums(static_cast<std::size_t>(extent.padded), NAN);
      Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent));

      sum_rows(kernel_stream(), DataType::f32, extent, dy.data(), sums.data(), workspace.data());

      std::uint64_t found = 0;
      for (const float sum : sums.host()) found = 31 * found + std::bit_cast<std::uint32_t>(sum);
      BOOST_TEST(found == digest);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_class_of_a_gpu_is_its_architecture) {
  BOOST_TEST(to_string(gpu_class(8, 0)) == "sm_80");
  BOOST_TEST(to_string(gpu_class(9, 0)) == "sm_90");
  BOOST_TEST(to_string(gpu_class(10, 0)) == "sm_100");
  BOOST_TEST(to_string(gpu_class(10, 3)) == "sm_100");
  for (const auto& [major, minor] : {std::pair{8, 6}, {8, 9}, {11, 0}, {12, 0}, {13, 0}}) {
    BOOST_TEST(to_string(gpu_class(major, minor)) == "sm_90");
  }
}

BOOST_AUTO_TEST_SUITE_END()
