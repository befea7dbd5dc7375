#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep {

/// What metrics are computed from: an engine's prediction for one sample.
struct Prediction {
  std::int32_t rank;  ///< of the label, as LabelRank
  /// The largest softmax probability, not in training; 0: a logit is NaN or infinity, or all are
  /// -infinity.
  float confidence = 0;
};

/// A number in [0, 1] for each sample, whose mean is reported.
struct Metric {
  std::string_view name;   ///< in events, JSON and TensorBoard
  std::string_view title;  ///< in text
  /// Whether training computes it, too. Its sum is then a value of the tail, and `epoch_NAME` of a
  /// checkpoint's state, so another such metric needs a new version of the format, and may round
  /// the sums of gradients over three ranks or more differently.
  bool in_training;
  double (*value)(const Prediction&);
};

[[nodiscard]] constexpr double top1_of(const Prediction& prediction) {
  return prediction.rank < 1 ? 1 : 0;
}
[[nodiscard]] constexpr double top5_of(const Prediction& prediction) {
  return prediction.rank < 5 ? 1 : 0;
}
/// The network is calibrated if its mean is that of top-1. Source: C. Guo et al., "On calibration
/// of modern neural networks", 2017.
[[nodiscard]] constexpr double confidence_of(const Prediction& prediction) {
  return static_cast<double>(prediction.confidence);
}

/// Those of training come first.
inline constexpr std::array metric_table{
    Metric{.name = "top1", .title = "top-1", .in_training = true, .value = top1_of},
    Metric{.name = "top5", .title = "top-5", .in_training = true, .value = top5_of},
    Metric{
        .name = "confidence", .title = "confidence", .in_training = false, .value = confidence_of}};

/// Of a metric in the table; one that is not there does not compile.
[[nodiscard]] consteval std::size_t metric_index(std::string_view name) {
  std::size_t index = 0;
  while (metric_table.at(index).name != name) ++index;
  return index;
}
/// The metric that chooses the best checkpoint: the greatest mean is the best.
inline constexpr std::size_t deciding_metric = metric_index("top1");
/// Number of the metrics that training computes.
inline constexpr auto training_metrics =
    static_cast<std::size_t>(std::ranges::count_if(metric_table, &Metric::in_training));
static_assert(std::ranges::is_partitioned(metric_table, &Metric::in_training));
static_assert(deciding_metric < training_metrics, "reports of training show it");

/// A value for each metric of the table: of a sample, a sum over samples, or a mean.
struct MetricValues {
  std::array<double, metric_table.size()> values{};

  [[nodiscard]] double operator[](std::size_t metric) const { return values[metric]; }
  [[nodiscard]] double& operator[](std::size_t metric) { return values[metric]; }
  MetricValues& operator+=(const MetricValues& other) noexcept {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
    return *this;
  }
  [[nodiscard]] MetricValues operator/(double divisor) const noexcept {
    MetricValues result = *this;
    for (double& value : result.values) value /= divisor;
    return result;
  }
  friend bool operator==(const MetricValues&, const MetricValues&) = default;
};
[[nodiscard]] inline MetricValues metrics_of(const Prediction& prediction) {
  MetricValues result;
  for (std::size_t i = 0; i < metric_table.size(); ++i) {
    result[i] = metric_table[i].value(prediction);
  }
  return result;
}

}  // namespace lockstep
