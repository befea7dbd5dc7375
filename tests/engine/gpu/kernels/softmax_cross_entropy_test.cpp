#include "kernel_values.hpp"

#include <algorithm>
#include <limits>

using namespace lockstep::gpu;

namespace {

constexpr std::int64_t batch = 6;

struct Loss {
  explicit Loss(const LossExtent& extent)
      : logits(static_cast<std::size_t>(extent.batch * extent.classes), NAN),
        log_sums(static_cast<std::size_t>(extent.batch), NAN),
        losses(log_sums),
        larger(log_sums.size(), -1) {}
  [[nodiscard]] LossOutputs view() {
    return {logits.data(), log_sums.data(), losses.data(), larger.data()};
  }
  std::vector<float> logits;
  std::vector<float> log_sums;
  std::vector<float> losses;
  std::vector<std::int32_t> larger;
};

/// Expected values of a sample, in double.
struct Expected {
  double log_sum = 0;
  double loss = 0;
  std::int32_t larger = 0;
};
Expected expected_of(const Values& logits, const LossExtent& extent, std::int64_t sample,
                     std::int32_t label) {
  const auto logit = [&](std::int64_t k) { return logits[sample * extent.padded + k]; };
  double largest = logit(0);
  for (std::int64_t k = 0; k < extent.classes; ++k) largest = std::max(largest, logit(k));
  Expected result;
  double sum = 0;
  double mean = 0;
  for (std::int64_t k = 0; k < extent.classes; ++k) {
    sum += std::exp(logit(k) - largest);
    mean += logit(k) / static_cast<double>(extent.classes);
    result.larger += logit(k) > logit(label) ? 1 : 0;
  }
  result.log_sum = std::log(sum) + largest;
  result.loss =
      result.log_sum - (1 - extent.label_smoothing) * logit(label) - extent.label_smoothing * mean;
  return result;
}

std::vector<std::int32_t> labels_below(std::int64_t classes) {
  std::vector<std::int32_t> labels(batch);
  for (std::size_t n = 0; n < batch; ++n) {
    labels[n] = static_cast<std::int32_t>(static_cast<std::int64_t>(n * 37 + 1) % classes);
  }
  return labels;
}

struct Case {
  std::int64_t classes;
  double label_smoothing;
  std::int64_t samples;
};

LossExtent extent_of(const Case& each, DataType type) {
  return {.batch = batch,
          .classes = each.classes,
          .padded = padded_channels(each.classes, type),
          .label_smoothing = each.label_smoothing};
}
Values logits_of(const LossExtent& extent, DataType type, double spread) {
  Values logits = random_matrix(type, {batch, extent.classes, extent.padded}, 1);
  for (std::int64_t i = 0; i < logits.size(); ++i) logits.set(i, logits[i] * spread);
  return logits;
}

void check(const Case& each, DataType type, double spread) {
  const LossExtent extent = extent_of(each, type);
  const Values logits = logits_of(extent, type, spread);
  std::vector<std::int32_t> labels = labels_below(each.classes);
  for (std::int64_t n = each.samples; n < batch; ++n) labels[static_cast<std::size_t>(n)] = -77;
  Loss loss(extent);
  Values gradient(type, batch * extent.padded);
  const float scale = 0.125F;

  softmax_cross_entropy_forward(no_stream, type, extent, logits.data(), labels.data(), each.samples,
                                loss.view());
  softmax_cross_entropy_backward(no_stream, type, extent, loss.view(), labels.data(), scale,
                                 gradient.data());

  for (std::int64_t n = 0; n < batch; ++n) {
    const auto at = static_cast<std::size_t>(n);
    if (n >= each.samples) {
      BOOST_TEST(loss.losses[at] == 0);
      BOOST_TEST(loss.larger[at] == std::max<std::int64_t>(each.classes, 5));
      continue;
    }
    const Expected expected = expected_of(logits, extent, n, labels[at]);
    BOOST_TEST(is_close(static_cast<double>(loss.losses[at]), expected.loss, DataType::f32, 1e-9));
    BOOST_TEST(
        is_close(static_cast<double>(loss.log_sums[at]), expected.log_sum, DataType::f32, 1e-9));
    BOOST_TEST(loss.larger[at] == expected.larger);
  }
  const auto logit = [&](std::int64_t i) {
    return logits[i / each.classes * extent.padded + i % each.classes];
  };
  check_close(reader(loss.logits), logit, batch * each.classes, DataType::f32, 0);
  const auto expected_gradient = [&](std::int64_t i) {
    const std::int64_t n = i / extent.padded;
    const std::int64_t k = i % extent.padded;
    if (n >= each.samples || k >= each.classes) return 0.0;
    const std::int32_t label = labels[static_cast<std::size_t>(n)];
    const double target = each.label_smoothing / static_cast<double>(each.classes) +
                          (k == label ? 1 - each.label_smoothing : 0.0);
    const double log_sum = expected_of(logits, extent, n, label).log_sum;
    return static_cast<double>(scale) * (std::exp(logits[i] - log_sum) - target);
  };
  // The log sum is rounded to fp32.
  check_close(reader(gradient), expected_gradient, gradient.size(), type, 1e-7 * (1 + spread));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(softmax_cross_entropy)

BOOST_AUTO_TEST_CASE(losses_and_gradients_follow_the_formula) {
  for (const DataType type : all_types) {
    for (const Case& each :
         {Case{2, 0, batch}, Case{3, 0.1, batch}, Case{10, 0, 4}, Case{255, 0.1, 1},
          Case{257, 0, batch}, Case{1000, 0.1, batch}, Case{1000, 0, 5}, Case{1001, 0.1, 0}}) {
      BOOST_TEST_CONTEXT(type << ", " << each.classes << " classes, smoothing "
                              << each.label_smoothing << ", " << each.samples << " samples") {
        check(each, type, 1);
        check(each, type, 50);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_makes_the_loss_nan_and_is_no_hit) {
  for (const std::int64_t classes : {std::int64_t{3}, std::int64_t{300}}) {
    const LossExtent extent = extent_of({classes, 0, batch}, DataType::f32);
    Values logits = logits_of(extent, DataType::f32, 1);
    const std::vector<std::int32_t> labels = labels_below(classes);
    logits.set(2 * extent.padded + classes - 1, std::numeric_limits<double>::quiet_NaN());
    logits.set(4 * extent.padded, std::numeric_limits<double>::quiet_NaN());
    Loss loss(extent);

    softmax_cross_entropy_forward(no_stream, DataType::f32, extent, logits.data(), labels.data(),
                                  batch, loss.view());

    for (std::size_t n = 0; n < batch; ++n) {
      const bool is_nan = n == 2 || n == 4;
      BOOST_TEST(std::isnan(loss.losses[n]) == is_nan);
      BOOST_TEST((loss.larger[n] == std::max<std::int64_t>(classes, 5)) == is_nan);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_class_of_probability_zero_adds_no_loss_without_smoothing) {
  const LossExtent extent = extent_of({10, 0, batch}, DataType::f32);
  Values logits = logits_of(extent, DataType::f32, 1);
  std::vector<std::int32_t> labels(batch, 3);
  for (std::int64_t n = 0; n < batch; ++n) {
    logits.set(n * extent.padded, -std::numeric_limits<double>::infinity());
  }
  Loss loss(extent);

  softmax_cross_entropy_forward(no_stream, DataType::f32, extent, logits.data(), labels.data(),
                                batch, loss.view());

  for (const float each : loss.losses) BOOST_TEST(std::isfinite(each));
}

BOOST_AUTO_TEST_SUITE_END()
