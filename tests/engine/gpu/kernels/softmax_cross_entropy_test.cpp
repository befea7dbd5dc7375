#include "loss_values.hpp"

#include <algorithm>
#include <limits>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

constexpr std::int64_t batch = 6;

/// Expected values of a sample, in double.
struct Expected {
  double log_sum = 0;
  double loss = 0;
  std::int64_t rank = 0;
};
Expected expected_of(const Values& logits, const LossExtent& extent, std::int64_t sample,
                     const SampleTarget& target, double label_smoothing) {
  const auto logit = [&](std::int64_t k) { return logits[sample * extent.padded + k]; };
  double largest = logit(0);
  for (std::int64_t k = 0; k < extent.classes; ++k) largest = std::max(largest, logit(k));
  Expected result;
  double sum = 0;
  double mean = 0;
  for (std::int64_t k = 0; k < extent.classes; ++k) {
    sum += std::exp(logit(k) - largest);
    mean += logit(k) / static_cast<double>(extent.classes);
  }
  const std::int32_t label = target.weight < 0.5 ? target.partner : target.label;
  result.rank = rank_of(label, logits, extent, sample);
  result.log_sum = std::log(sum) + largest;
  const double of_labels =
      target.weight * logit(target.label) + (1 - target.weight) * logit(target.partner);
  result.loss = result.log_sum - (1 - label_smoothing) * of_labels - label_smoothing * mean;
  return result;
}

Mirrored<std::int32_t> labels_below(std::int64_t classes) {
  Mirrored<std::int32_t> labels(batch);
  for (std::size_t n = 0; n < batch; ++n) {
    labels.host()[n] = static_cast<std::int32_t>(static_cast<std::int64_t>(n * 37 + 1) % classes);
  }
  return labels;
}

/// Each sample's partner is the next one, beginning with two shares of 0 and 1.
Mirrored<ImageMix> cyclic_mixes(std::int64_t samples) {
  Mirrored<ImageMix> mixes(batch, {.partner = -77, .weight = 0.5F});
  for (std::int64_t n = 0; n < samples; ++n) {
    mixes.host()[static_cast<std::size_t>(n)] = {
        .partner = static_cast<std::int32_t>((n + 1) % samples),
        .weight = n < 2 ? static_cast<float>(n) : static_cast<float>(n) / 8};
  }
  return mixes;
}

struct Case {
  std::int64_t classes;
  double label_smoothing;
  std::int64_t samples;
  bool mixed = false;
};

LossExtent extent_of(const Case& each) {
  return {.batch = batch, .classes = each.classes, .padded = padded_channels(each.classes)};
}
LossTerms terms_of(std::int64_t classes, double label_smoothing) {
  return SoftmaxCrossEntropyTerms{.targets = loss_targets(classes, label_smoothing)};
}

void check(const Case& each, DataType type, double spread) {
  const LossExtent extent = extent_of(each);
  const LossTerms terms = terms_of(each.classes, each.label_smoothing);
  const Values logits = random_logits(extent, type, spread);
  Mirrored<std::int32_t> labels = labels_below(each.classes);
  for (std::int64_t n = each.samples; n < batch; ++n)
    labels.host()[static_cast<std::size_t>(n)] = -77;
  const Mirrored<ImageMix> mixes = cyclic_mixes(each.samples);
  const Targets targets{.labels = std::as_const(labels).data(),
                        .mixes = each.mixed ? mixes.data() : nullptr};
  const Targets on_host{.labels = std::as_const(labels).host().data(),
                        .mixes = each.mixed ? mixes.host().data() : nullptr};
  LossValues loss(extent);
  Values gradient(type, batch * extent.padded);
  const Mirrored<float> scale(1, 0.125F);

  loss_forward(kernel_stream(), type, extent, terms, {logits.data(), targets, each.samples},
               loss.view());
  loss_backward(kernel_stream(), type, extent, terms, loss.view(), targets, scale.data(),
                gradient.data());

  for (std::int64_t n = 0; n < batch; ++n) {
    const auto at = static_cast<std::size_t>(n);
    if (n >= each.samples) {
      BOOST_TEST(loss.losses[at] == 0);
      BOOST_TEST(loss.predictions[at].rank == std::max<std::int64_t>(each.classes, 5));
      continue;
    }
    const Expected expected =
        expected_of(logits, extent, n, on_host.target(n), each.label_smoothing);
    BOOST_TEST(is_close(static_cast<double>(loss.losses[at]), expected.loss, DataType::f32, 1e-9));
    BOOST_TEST(is_close(static_cast<double>(loss.kept[at]), expected.log_sum, DataType::f32, 1e-9));
    BOOST_TEST(loss.predictions[at].rank == expected.rank);
  }
  const auto logit = [&](std::int64_t i) {
    return logits[i / each.classes * extent.padded + i % each.classes];
  };
  check_close(reader(loss.logits), logit, batch * each.classes, DataType::f32, 0);
  const auto expected_gradient = [&](std::int64_t i) {
    const std::int64_t n = i / extent.padded;
    const std::int64_t k = i % extent.padded;
    if (n >= each.samples || k >= each.classes) return 0.0;
    const SampleTarget target_of_n = on_host.target(n);
    const double share = (k == target_of_n.label ? target_of_n.weight : 0) +
                         (k == target_of_n.partner ? 1 - target_of_n.weight : 0);
    const double target = each.label_smoothing / static_cast<double>(each.classes) +
                          (1 - each.label_smoothing) * share;
    const double log_sum =
        expected_of(logits, extent, n, target_of_n, each.label_smoothing).log_sum;
    return static_cast<double>(scale.host()[0]) * (std::exp(logits[i] - log_sum) - target);
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
          Case{257, 0, batch}, Case{1000, 0.1, batch}, Case{1000, 0, 5}, Case{1001, 0.1, 0},
          Case{.classes = 2, .label_smoothing = 0, .samples = batch, .mixed = true},
          Case{.classes = 10, .label_smoothing = 0.1, .samples = 5, .mixed = true},
          Case{.classes = 257, .label_smoothing = 0, .samples = batch, .mixed = true}}) {
      BOOST_TEST_CONTEXT(type << ", " << each.classes << " classes, smoothing "
                              << each.label_smoothing << ", " << each.samples << " samples"
                              << (each.mixed ? ", mixed" : "")) {
        check(each, type, 1);
        check(each, type, 50);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_makes_the_loss_nan_and_is_no_hit) {
  for (const std::int64_t classes : {std::int64_t{3}, std::int64_t{300}}) {
    const LossExtent extent = extent_of({classes, 0, batch});
    Values logits = random_logits(extent, DataType::f32, 1);
    const Mirrored<std::int32_t> labels = labels_below(classes);
    logits.set(2 * extent.padded + classes - 1, std::numeric_limits<double>::quiet_NaN());
    logits.set(4 * extent.padded, std::numeric_limits<double>::quiet_NaN());
    LossValues loss(extent);

    loss_forward(kernel_stream(), DataType::f32, extent, terms_of(extent.classes, 0),
                 {logits.data(), {.labels = labels.data()}, batch}, loss.view());

    for (std::size_t n = 0; n < batch; ++n) {
      const bool is_nan = n == 2 || n == 4;
      BOOST_TEST(std::isnan(loss.losses[n]) == is_nan);
      BOOST_TEST((loss.predictions[n].rank == std::max<std::int64_t>(classes, 5)) == is_nan);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_class_of_probability_zero_adds_no_loss_without_smoothing) {
  const LossExtent extent = extent_of({10, 0, batch});
  Values logits = random_logits(extent, DataType::f32, 1);
  Mirrored<std::int32_t> labels(batch, 3);
  for (std::int64_t n = 0; n < batch; ++n) {
    logits.set(n * extent.padded, -std::numeric_limits<double>::infinity());
  }
  LossValues loss(extent);

  loss_forward(kernel_stream(), DataType::f32, extent, terms_of(extent.classes, 0),
               {logits.data(), {.labels = labels.data()}, batch}, loss.view());

  for (const float each : loss.losses.host()) BOOST_TEST(std::isfinite(each));
}

BOOST_AUTO_TEST_SUITE_END()
