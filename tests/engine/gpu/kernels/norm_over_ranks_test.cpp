#include "kernel_values.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
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

/// As an all-reduce over ranks with `rows` rows each, in the type Sum.
template <typename Sum>
Statistics combined(std::vector<Statistics> ranks, const std::vector<std::int64_t>& rows,
                    double& elements) {
  std::vector<Sum> total(count_of_norm_sums({.rows = 0, .channels = channels, .padded = padded}));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    Mirrored<double> sums(total.size(), NAN);
    sums_of_statistics(kernel_stream(),
                       {.rows = rows[rank], .channels = channels, .padded = padded},
                       ranks[rank].view(), sums.data());
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += static_cast<Sum>(sums[i]);
  }
  Mirrored<double> sums(total.size());
  std::ranges::copy(total, sums.host().begin());
  Mirrored<double> count(1, NAN);
  Statistics result;
  statistics_of_sums(kernel_stream(), {.rows = rows[0], .channels = channels, .padded = padded},
                     sums.data(), result.view(), count.data());
  elements = count[0];
  return result;
}

/// Statistics of ranks' normal values with the same mean and deviation, and those of all together.
struct Case {
  std::vector<std::int64_t> rows = {700, 701, 200};
  std::vector<Statistics> ranks = std::vector<Statistics>(3);
  std::vector<double> mean = std::vector<double>(padded);
  std::vector<double> variance = std::vector<double>(padded);

  explicit Case(double center) {
    Random random(7);
    for (std::size_t c = 0; c < padded; ++c) {
      std::vector<double> all;
      for (std::size_t rank = 0; rank < rows.size(); ++rank) {
        const std::size_t begin = all.size();
        for (std::int64_t row = 0; row < rows[rank]; ++row) {
          all.push_back(c < channels ? center + random() : 0);
        }
        const auto [m, v] = moments(all, begin);
        ranks[rank].mean.host()[c] = static_cast<float>(m);
        ranks[rank].variance.host()[c] = static_cast<float>(v);
      }
      std::tie(mean[c], variance[c]) = moments(all, 0);
    }
  }
  [[nodiscard]] static std::pair<double, double> moments(const std::vector<double>& values,
                                                         std::size_t begin) {
    double mean = 0;
    double variance = 0;
    const auto count = static_cast<double>(values.size() - begin);
    for (std::size_t i = begin; i < values.size(); ++i) mean += values[i] / count;
    for (std::size_t i = begin; i < values.size(); ++i) {
      variance += (values[i] - mean) * (values[i] - mean) / count;
    }
    return {mean, variance};
  }
  /// The largest error of a variance.
  template <typename Sum>
  [[nodiscard]] double error() const {
    double elements = 0;
    const Statistics found = combined<Sum>(ranks, rows, elements);
    double worst = 0;
    for (std::size_t c = 0; c < channels; ++c) {
      worst = std::max(worst, std::abs(static_cast<double>(found.variance[c]) - variance[c]));
    }
    return worst;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(statistics_over_ranks_are_those_of_all_their_values) {
  const Case ranks(0.5);
  double elements = 0;

  const Statistics found = combined<double>(ranks.ranks, ranks.rows, elements);

  BOOST_TEST(elements == 1601);
  for (std::size_t c = 0; c < padded; ++c) {
    const double deviation = std::sqrt(ranks.variance[c] + 1e-5);
    BOOST_TEST(std::abs(static_cast<double>(found.mean[c]) - ranks.mean[c]) <= 1e-7);
    BOOST_TEST(std::abs(static_cast<double>(found.variance[c]) - ranks.variance[c]) <= 3e-7);
    BOOST_TEST(std::abs(static_cast<double>(found.inverse_deviation[c]) * deviation - 1) <= 1e-6);
  }
  BOOST_TEST(found.mean[padded - 1] == 0);
  BOOST_TEST(found.variance[padded - 1] == 0);
}

// With a mean of 1000 deviations, a rank's mean, in fp32, is already 3e-5 deviations from the exact
// one, which the means' distances add to the variance. Sums in fp32 lose all of its digits.
BOOST_AUTO_TEST_CASE(a_large_mean_needs_sums_in_fp64) {
  BOOST_TEST(Case(1000).error<double>() <= 1e-5);
  BOOST_TEST(Case(1000).error<float>() >= 1e-2);
}

BOOST_AUTO_TEST_CASE(one_rank_with_nan_makes_its_channel_nan) {
  Case ranks(0);
  ranks.ranks[1].mean.host()[2] = NAN;
  double elements = 0;

  const Statistics found = combined<double>(ranks.ranks, ranks.rows, elements);

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
