#include "kernel_values.hpp"

#include <algorithm>
#include <vector>

using namespace lockstep::gpu;

namespace {

constexpr std::int64_t channels = 5;
constexpr std::int64_t padded = 8;

struct Statistics {
  Mirrored<float> mean = Mirrored<float>(padded, NAN);
  Mirrored<float> variance = Mirrored<float>(padded, NAN);
  Mirrored<float> inverse_deviation = Mirrored<float>(padded, NAN);
  [[nodiscard]] NormStatistics view() {
    return {.mean = mean.data(),
            .variance = variance.data(),
            .inverse_deviation = inverse_deviation.data(),
            .eps = 1e-5F};
  }
};

constexpr Matrix rows_of(std::int64_t rows) {
  return {.rows = rows, .channels = channels, .padded = padded};
}

/// Values of ranks around a center, with a deviation of 1.
struct Ranks {
  std::vector<std::int64_t> rows = {700, 701, 200};
  std::vector<Values> values;
  std::vector<double> mean = std::vector<double>(padded);
  std::vector<double> variance = std::vector<double>(padded);

  Ranks(DataType type, double center) {
    Random random(7);
    for (const std::int64_t count : rows) {
      values.emplace_back(type, count * padded);
      for (std::int64_t i = 0; i < count * padded; ++i) {
        values.back().set(i, i % padded < channels ? center + random() : 0);
      }
    }
    for_all([&](std::size_t c, double value) { mean[c] += value / 1601; });
    for_all([&](std::size_t c, double value) {
      variance[c] += (value - mean[c]) * (value - mean[c]) / 1601;
    });
  }
  template <typename Use>
  void for_all(const Use& use) const {
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      for (std::int64_t i = 0; i < rows[rank] * padded; ++i) {
        use(static_cast<std::size_t>(i % padded), values[rank][i]);
      }
    }
  }
  /// As with an all-reduce over the ranks in the type Sum.
  template <typename Sum>
  [[nodiscard]] Statistics combined(double& elements) const {
    std::vector<Sum> total(count_of_norm_sums(rows_of(1)));
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      const Matrix extent = rows_of(rows[rank]);
      Mirrored<double> sums(total.size(), NAN);
      Mirrored<std::byte> workspace = poisoned_bytes(reduction_workspace(extent));
      batch_norm_sums(kernel_stream(), values[rank].type(), extent, values[rank].data(),
                      sums.data(), workspace.data());
      for (std::size_t i = 0; i < total.size(); ++i) total[i] += static_cast<Sum>(sums[i]);
    }
    Mirrored<double> sums(total.size());
    std::ranges::copy(total, sums.host().begin());
    Mirrored<double> count(1, NAN);
    Statistics result;
    statistics_of_sums(kernel_stream(), rows_of(1), sums.data(), result.view(), count.data());
    elements = count[0];
    return result;
  }
  /// The largest error of a variance, which is about 1.
  template <typename Sum>
  [[nodiscard]] double error() const {
    double elements = 0;
    const Statistics found = combined<Sum>(elements);
    double worst = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      worst = std::max(worst, std::abs(static_cast<double>(found.variance[c]) - variance[c]));
    }
    return worst;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(statistics_over_ranks_are_those_of_all_their_values) {
  for (const DataType type : all_types) {
    const Ranks ranks(type, 0.5);
    double elements = 0;

    const Statistics found = ranks.combined<double>(elements);

    BOOST_TEST(elements == 1601);
    for (std::size_t c = 0; c < padded; ++c) {
      const double deviation = std::sqrt(ranks.variance[c] + 1e-5);
      BOOST_TEST(std::abs(static_cast<double>(found.mean[c]) - ranks.mean[c]) <= 2e-7);
      BOOST_TEST(std::abs(static_cast<double>(found.variance[c]) - ranks.variance[c]) <= 5e-7);
      BOOST_TEST(std::abs(static_cast<double>(found.inverse_deviation[c]) * deviation - 1) <= 1e-6);
    }
    BOOST_TEST(found.mean[padded - 1] == 0);
    BOOST_TEST(found.variance[padded - 1] == 0);
  }
}

// With a mean of 1000 deviations, the squares' mean is 10^6 times the variance, so fp32 has none of
// its digits.
BOOST_AUTO_TEST_CASE(a_large_mean_needs_sums_in_fp64) {
  const Ranks ranks(DataType::f32, 1000);
  BOOST_TEST(ranks.error<double>() <= 2e-6);
  BOOST_TEST(ranks.error<float>() >= 1e-2);
}

BOOST_AUTO_TEST_CASE(one_rank_with_nan_makes_its_channel_nan) {
  Ranks ranks(DataType::f32, 0);
  ranks.values[1].set(5 * padded + 2, NAN);
  double elements = 0;

  const Statistics found = ranks.combined<double>(elements);

  for (std::size_t c = 0; c < padded; ++c) {
    BOOST_TEST(std::isnan(found.mean[c]) == (c == 2));
    BOOST_TEST(std::isnan(found.variance[c]) == (c == 2));
  }
}

BOOST_AUTO_TEST_CASE(a_share_of_the_sums_of_equal_ranks_is_exact) {
  Random random(9);
  Mirrored<float> sums(2 * padded);
  for (float& sum : sums.host()) sum = static_cast<float>(random());
  const Mirrored<float> before = sums;
  for (const double ranks : {1.0, 4.0}) {
    Mirrored<float> scaled = before;
    const Mirrored<double> elements{ranks * 49};

    scale_to_share(kernel_stream(), {.rows = 49, .channels = channels, .padded = padded},
                   elements.data(), scaled.data());

    for (std::size_t i = 0; i < scaled.size(); ++i) {
      BOOST_TEST(scaled[i] == before[i] / static_cast<float>(ranks));
    }
  }
}
