#include "loss_values.hpp"

#include <algorithm>
#include <limits>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

constexpr std::int64_t batch = 6;

struct Case {
  std::int64_t classes;
  double label_smoothing;
  double target_threshold;
  std::int64_t samples;
};

LossExtent extent_of(const Case& each) {
  return {.batch = batch, .classes = each.classes, .padded = padded_channels(each.classes)};
}
LossTerms terms_of(const Case& each) {
  return BinaryCrossEntropyTerms{
      .targets = loss_targets(each.classes, each.label_smoothing, each.target_threshold)};
}

/// Labels of samples that are mixed in a cycle.
struct Labels {
  Mirrored<std::int32_t> labels;
  Mirrored<ImageMix> mixes;
  explicit Labels(const Case& each) : labels(batch, -77), mixes(batch, {.partner = -77}) {
    for (std::int64_t n = 0; n < each.samples; ++n) {
      const auto at = static_cast<std::size_t>(n);
      labels.host()[at] = static_cast<std::int32_t>((n * 37 + 1) % each.classes);
      mixes.host()[at] = {.partner = static_cast<std::int32_t>((n + 1) % each.samples),
                          .weight = static_cast<float>(n) / 5};
    }
  }
  [[nodiscard]] Targets view() const { return {labels.data(), mixes.data()}; }
  [[nodiscard]] Targets on_host() const { return {labels.host().data(), mixes.host().data()}; }
};

double target_of(const Case& each, const Targets& targets, std::int64_t n, std::int64_t k) {
  const ImageMix& mix = targets.mixes[n];
  const double weight = mix.weight;
  const double share =
      (targets.labels[n] == k ? weight : 0) + (targets.labels[mix.partner] == k ? 1 - weight : 0);
  const double target =
      each.label_smoothing / static_cast<double>(each.classes) + (1 - each.label_smoothing) * share;
  if (each.target_threshold == 0) return target;
  return target > each.target_threshold ? 1 : 0;
}

void check(const Case& each, DataType type, double spread) {
  const LossExtent extent = extent_of(each);
  const Values logits = random_logits(extent, type, spread);
  const Labels labels(each);
  LossValues out(extent);
  Values gradient(type, batch * extent.padded);
  const Mirrored<float> scale(1, 0.125F);

  loss_forward(kernel_stream(), type, extent, terms_of(each),
               {logits.data(), labels.view(), each.samples}, out.view());
  loss_backward(kernel_stream(), type, extent, terms_of(each), out.view(), labels.view(),
                scale.data(), gradient.data());

  const auto classes = static_cast<double>(each.classes);
  for (std::int64_t n = 0; n < batch; ++n) {
    const auto at = static_cast<std::size_t>(n);
    if (n >= each.samples) {
      BOOST_TEST(out.losses[at] == 0);
      BOOST_TEST(out.predictions[at].rank == std::max<std::int64_t>(each.classes, 5));
      continue;
    }
    const std::int32_t label =
        labels.labels[labels.mixes[at].weight < 0.5F
                          ? static_cast<std::size_t>(labels.mixes[at].partner)
                          : at];
    double loss = 0;
    for (std::int64_t k = 0; k < each.classes; ++k) {
      const double logit = logits[n * extent.padded + k];
      const double target = target_of(each, labels.on_host(), n, k);
      loss += target * std::log1p(std::exp(-logit)) + (1 - target) * std::log1p(std::exp(logit));
    }
    BOOST_TEST(is_close(static_cast<double>(out.losses[at]), loss / classes, DataType::f32, 1e-9));
    BOOST_TEST(out.predictions[at].rank == rank_of(label, logits, extent, n));
  }
  const auto expected_gradient = [&](std::int64_t i) {
    const std::int64_t n = i / extent.padded;
    const std::int64_t k = i % extent.padded;
    if (n >= each.samples || k >= each.classes) return 0.0;
    const double probability = 1 / (1 + std::exp(-logits[i]));
    return static_cast<double>(scale.host()[0]) *
           (probability - target_of(each, labels.on_host(), n, k)) / classes;
  };
  // Values of fp16 below 2^-14 are multiples of 2^-24.
  const double slack = type == DataType::f16 ? 0x1p-25 : 1e-9;
  check_close(reader(gradient), expected_gradient, gradient.size(), type, slack);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(binary_cross_entropy)

BOOST_AUTO_TEST_CASE(losses_and_gradients_follow_the_formula) {
  for (const DataType type : all_types) {
    for (const Case& each :
         {Case{2, 0, 0, batch}, Case{3, 0.1, 0, batch}, Case{10, 0, 0.2, 4}, Case{255, 0.1, 0.2, 1},
          Case{257, 0, 0, batch}, Case{1000, 0.1, 0.5, batch}, Case{1001, 0.1, 0, 0}}) {
      BOOST_TEST_CONTEXT(type << ", " << each.classes << " classes, smoothing "
                              << each.label_smoothing << ", threshold " << each.target_threshold
                              << ", " << each.samples << " samples") {
        check(each, type, 1);
        check(each, type, 50);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_makes_the_loss_nan_and_is_no_hit) {
  const Case each{.classes = 300, .label_smoothing = 0, .target_threshold = 0, .samples = batch};
  const LossExtent extent = extent_of(each);
  Values logits = random_matrix(DataType::f32, {batch, extent.classes, extent.padded}, 1);
  logits.set(2 * extent.padded + 299, std::numeric_limits<double>::quiet_NaN());
  const Labels labels(each);
  LossValues out(extent);

  loss_forward(kernel_stream(), DataType::f32, extent, terms_of(each),
               {logits.data(), labels.view(), batch}, out.view());

  for (std::size_t n = 0; n < batch; ++n) {
    BOOST_TEST(std::isnan(out.losses[n]) == (n == 2));
    BOOST_TEST((out.predictions[n].rank == 300) == (n == 2));
  }
}

BOOST_AUTO_TEST_SUITE_END()
