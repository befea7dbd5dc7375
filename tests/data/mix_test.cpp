#include "lockstep/data/mix.hpp"

#include <boost/math/special_functions/beta.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace lockstep;

namespace {

PhiloxStream stream(std::uint64_t seed) {
  return mixing_stream(seed, 3, 17);
}

std::vector<float> counted(const ImageShape& image, float first) {
  std::vector<float> values(static_cast<std::size_t>(image.channels * image.height * image.width));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + 0.5F * static_cast<float>(i);
  return values;
}

}  // namespace

// The largest distance of n draws' empirical distribution from their own (Kolmogorov, Smirnov) is
// above 1.95 / sqrt(n) with probability 0.001.
BOOST_AUTO_TEST_CASE(weights_have_the_beta_distribution) {
  constexpr int count = 20000;
  for (const double alpha : {0.2, 0.4, 0.8, 1.0, 1.5, 8.0, 1000.0}) {
    PhiloxStream random = stream(5);
    std::vector<double> drawn(count);
    for (double& value : drawn) value = draw_beta(random, alpha);
    std::ranges::sort(drawn);

    double distance = 0;
    double mean = 0;
    double square = 0;
    for (int i = 0; i < count; ++i) {
      const double value = drawn[static_cast<std::size_t>(i)];
      BOOST_REQUIRE(value >= 0);
      BOOST_REQUIRE(value <= 1);
      const double expected = boost::math::ibeta(alpha, alpha, value);
      distance = std::max({distance, expected - static_cast<double>(i) / count,
                           static_cast<double>(i + 1) / count - expected});
      mean += value / count;
      square += value * value / count;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    BOOST_TEST(distance < 1.95 / std::sqrt(count), "alpha " << alpha << ": " << distance);
    BOOST_TEST(std::abs(mean - 0.5) < 4 * std::sqrt(variance / count), "alpha " << alpha);
    // The standard error of a variance is at most sqrt(2 / count) of it for these distributions.
    BOOST_TEST(std::abs(square - mean * mean - variance) < 4 * std::sqrt(2.0 / count) * variance,
               "alpha " << alpha);
  }
}

BOOST_AUTO_TEST_CASE(a_tiny_alpha_gives_weights_of_0_and_1) {
  PhiloxStream random = stream(5);
  int ones = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value = draw_beta(random, 1e-300);
    BOOST_REQUIRE((value == 0 || value == 1));
    ones += value == 1 ? 1 : 0;
  }
  BOOST_TEST(std::abs(ones - 500) < 4 * std::sqrt(1000 * 0.25));
}

// timm's rand_bbox().
BOOST_AUTO_TEST_CASE(a_cutmix_box_is_a_clipped_rectangle_around_a_random_pixel) {
  const ImageShape image{.channels = 1, .height = 37, .width = 24};
  PhiloxStream random = stream(6);
  for (int i = 0; i <= 1000; ++i) {
    const double lambda = i / 1000.0;
    PhiloxStream same = random;
    const std::int32_t centre_y = static_cast<std::int32_t>(same.next_below(37));
    const std::int32_t centre_x = static_cast<std::int32_t>(same.next_below(24));
    const double ratio = std::sqrt(1 - lambda);
    const auto cut_h = static_cast<std::int32_t>(37 * ratio);
    const auto cut_w = static_cast<std::int32_t>(24 * ratio);
    const std::int32_t top = std::clamp(centre_y - cut_h / 2, 0, 37);
    const std::int32_t bottom = std::clamp(centre_y + cut_h / 2, 0, 37);
    const std::int32_t left = std::clamp(centre_x - cut_w / 2, 0, 24);
    const std::int32_t right = std::clamp(centre_x + cut_w / 2, 0, 24);

    const PixelBox box = draw_cutmix_box(random, lambda, image);

    BOOST_REQUIRE((box == PixelBox{top, left, bottom - top, right - left}));
  }
}

BOOST_AUTO_TEST_CASE(the_weight_of_cutmix_is_the_share_outside_the_box) {
  const ImageShape image{.channels = 3, .height = 10, .width = 16};
  PhiloxStream random = stream(7);
  for (int i = 0; i < 1000; ++i) {
    const ImageMix mix = draw_mix(random, {.cutmix = 1}, image);
    int outside = 0;
    for (int y = 0; y < 10; ++y) {
      for (int x = 0; x < 16; ++x) outside += mix.box.contains(y, x) ? 0 : 1;
    }
    BOOST_REQUIRE_EQUAL(mix.weight, static_cast<float>(outside / 160.0));
  }
}

BOOST_AUTO_TEST_CASE(each_pair_gets_one_of_two_kinds_with_equal_probability) {
  const ImageShape image{.channels = 3, .height = 64, .width = 64};
  constexpr int count = 20000;
  PhiloxStream random = stream(8);
  int cuts = 0;
  for (int i = 0; i < count; ++i) {
    cuts += draw_mix(random, {.mixup = 0.2, .cutmix = 1}, image).box.is_empty() ? 0 : 1;
  }

  // A box of less than 2 x 2 pixels, 1 - lambda < (2 / 64)^2, is empty.
  const double share = 0.5 * (1 - std::pow(2.0 / 64, 2));
  BOOST_TEST(std::abs(cuts - count * share) < 4 * std::sqrt(count * 0.25));
  BOOST_TEST(draw_mix(random, {.mixup = 0.2}, image).box.is_empty());
}

BOOST_AUTO_TEST_CASE(different_pairs_epochs_and_seeds_draw_different_numbers) {
  std::vector<std::uint64_t> first;
  for (const std::uint64_t seed : {1, 2}) {
    for (const std::int64_t epoch : {0, 1}) {
      for (const std::int64_t pair : {0, 1, 2}) {
        first.push_back(mixing_stream(seed, epoch, pair).next_u64());
      }
    }
  }
  std::ranges::sort(first);
  BOOST_TEST((std::ranges::adjacent_find(first) == first.end()));
}

BOOST_AUTO_TEST_CASE(a_pair_is_mixed_in_both_layouts) {
  const ImageShape image{.channels = 3, .height = 5, .width = 4};
  const std::vector<float> one = counted(image, 1);
  const std::vector<float> other = counted(image, -20);
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    for (const ImageMix& mix :
         {ImageMix{.weight = 0.75F}, ImageMix{.weight = 0.7F, .box = {1, 2, 3, 2}}}) {
      std::vector<float> a = one;
      std::vector<float> b = other;

      mix_pair(mix, image, layout, a.data(), b.data());

      for (std::size_t i = 0; i < a.size(); ++i) {
        const auto pixel = static_cast<std::int64_t>(layout == ImageLayout::nchw ? i % 20 : i / 3);
        const bool swapped = mix.box.contains(pixel / 4, pixel % 4);
        const float weight = !mix.box.is_empty() ? (swapped ? 0.0F : 1.0F) : mix.weight;
        // Exact: 0.75 and 0.25 times these values need no rounding before the sum.
        BOOST_REQUIRE_EQUAL(a[i], weight * one[i] + (1 - weight) * other[i]);
        BOOST_REQUIRE_EQUAL(b[i], weight * other[i] + (1 - weight) * one[i]);
      }
    }
  }
}
