#include "lockstep/data/augment.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <map>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

std::vector<std::byte> counted_pixels(const ImageShape& shape) {
  std::vector<std::byte> pixels(
      static_cast<std::size_t>(shape.height * shape.width * shape.channels));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::byte>(i * 37 + 11);
  return pixels;
}

const std::vector<float> means{0.4F, 0.5F, 0.3F};
const std::vector<float> stds{0.2F, 0.25F, 0.3F};

/// The definition, for a single value.
float naive(const std::vector<std::byte>& pixels, const ImageShape& shape, const Window& window,
            std::int64_t width, std::int64_t y, std::int64_t x, std::int64_t c) {
  const std::int64_t from_y = window.top + y;
  const std::int64_t from_x = window.left + (window.flip ? width - 1 - x : x);
  const bool inside = from_y >= 0 && from_y < shape.height && from_x >= 0 && from_x < shape.width;
  const auto raw = inside ? std::to_integer<int>(pixels[static_cast<std::size_t>(
                                (from_y * shape.width + from_x) * shape.channels + c)])
                          : 0;
  const auto channel = static_cast<std::size_t>(c);
  return (static_cast<float>(raw) / 255.0F - means[channel]) / stds[channel];
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_window_equals_the_naive_reference_in_both_layouts) {
  for (const std::int64_t channels : {1, 3}) {
    const ImageShape shape{.channels = channels, .height = 7, .width = 5};
    const ImageShape wanted{.channels = channels, .height = 6, .width = 4};
    const auto pixels = counted_pixels(shape);
    const auto n = static_cast<std::size_t>(channels);
    const Normalizer normalizer(std::span<const float>(means).first(n),
                                std::span<const float>(stds).first(n));
    for (std::int64_t top = -7; top <= 8; ++top) {
      for (std::int64_t left = -6; left <= 7; ++left) {
        for (const bool flip : {false, true}) {
          const Window window{.top = top, .left = left, .flip = flip};
          std::vector<float> planes(6 * 4 * n, 99);
          std::vector<float> interleaved(6 * 4 * n, 99);

          normalizer.write(pixels, shape, window, {.shape = wanted, .layout = ImageLayout::nchw},
                           planes.data());
          normalizer.write(pixels, shape, window, {.shape = wanted, .layout = ImageLayout::nhwc},
                           interleaved.data());

          for (std::int64_t y = 0; y < 6; ++y) {
            for (std::int64_t x = 0; x < 4; ++x) {
              for (std::int64_t c = 0; c < channels; ++c) {
                const float expected = naive(pixels, shape, window, 4, y, x, c);
                BOOST_REQUIRE_EQUAL(planes[static_cast<std::size_t>((c * 6 + y) * 4 + x)],
                                    expected);
                BOOST_REQUIRE_EQUAL(
                    interleaved[static_cast<std::size_t>((y * 4 + x) * channels + c)], expected);
              }
            }
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(crop_flip_draws_every_window_equally_often) {
  const ImageShape image{.channels = 1, .height = 8, .width = 8};
  std::map<std::pair<std::int64_t, std::int64_t>, int> places;
  int flips = 0;
  constexpr int draws = 50'000;

  for (int i = 0; i < draws; ++i) {
    PhiloxStream random = augmentation_stream(1, 0, {.sample = i});
    const Window window = draw_crop_flip(random, image, image, 2);
    BOOST_REQUIRE(window.top >= -2 && window.top <= 2 && window.left >= -2 && window.left <= 2);
    ++places[{window.top, window.left}];
    flips += window.flip ? 1 : 0;
  }

  BOOST_TEST(places.size() == 25u);
  // Binomial of 50,000 draws: standard deviation 44 per window, 112 for the flips; the limits are
  // five deviations.
  for (const auto& [place, count] : places) BOOST_TEST(std::abs(count - draws / 25) < 220);
  BOOST_TEST(std::abs(flips - draws / 2) < 560);
}

BOOST_AUTO_TEST_CASE(draws_depend_only_on_sample_epoch_and_seed) {
  const auto draw = [](std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
    PhiloxStream random = augmentation_stream(seed, epoch, {.sample = sample});
    return random.next_u64();
  };

  BOOST_TEST(draw(1, 2, 3) == draw(1, 2, 3));
  BOOST_TEST(draw(1, 2, 3) != draw(2, 2, 3));
  BOOST_TEST(draw(1, 2, 3) != draw(1, 3, 3));
  BOOST_TEST(draw(1, 2, 3) != draw(1, 2, 4));
  BOOST_TEST(draw(1, 2, 3) != draw(1, 2, 3 + (std::int64_t{1} << 40)));
}

BOOST_AUTO_TEST_CASE(resized_crops_are_within_the_limits_of_area_and_ratio) {
  const ImageShape image{.channels = 3, .height = 300, .width = 400};
  double smallest = 1;
  double largest = 0;

  for (int i = 0; i < 20'000; ++i) {
    PhiloxStream random = augmentation_stream(1, 0, {.sample = i});
    const Region region = draw_resized_crop(random, image);
    BOOST_REQUIRE(region.top >= 0 && region.top + region.height <= 300);
    BOOST_REQUIRE(region.left >= 0 && region.left + region.width <= 400);
    const double area = static_cast<double>(region.height * region.width) / (300.0 * 400.0);
    const double ratio = static_cast<double>(region.width) / static_cast<double>(region.height);
    BOOST_REQUIRE(ratio > 0.74 && ratio < 1.35);  // extents are rounded to pixels
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
  }

  BOOST_TEST(smallest > 0.078);
  BOOST_TEST(smallest < 0.085);
  BOOST_TEST(largest > 0.98);
}

BOOST_AUTO_TEST_CASE(erased_boxes_are_within_the_limits_of_area_and_ratio) {
  const ImageShape image{.channels = 3, .height = 300, .width = 400};
  double smallest = 1;
  double largest = 0;

  for (int i = 0; i < 20'000; ++i) {
    PhiloxStream random = erasing_stream(1, 0, {.sample = i});
    const PixelBox box = draw_erased_box(random, 1, image);
    BOOST_REQUIRE(!box.is_empty());
    BOOST_REQUIRE(box.top >= 0 && box.top + box.height <= 300);
    BOOST_REQUIRE(box.left >= 0 && box.left + box.width <= 400);
    const double area = static_cast<double>(box.height * box.width) / (300.0 * 400.0);
    const double ratio = static_cast<double>(box.height) / static_cast<double>(box.width);
    BOOST_REQUIRE(ratio > 0.29 && ratio < 3.4);  // extents are rounded to pixels
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
  }

  BOOST_TEST(smallest > 0.0195);
  BOOST_TEST(smallest < 0.021);
  BOOST_TEST(largest > 0.32);
  BOOST_TEST(largest < 0.335);
}

BOOST_AUTO_TEST_CASE(nothing_is_erased_if_no_box_fits_or_by_chance) {
  PhiloxStream random = erasing_stream(1, 0, {});
  BOOST_TEST(draw_erased_box(random, 1, {.channels = 3, .height = 1, .width = 900}).is_empty());
  BOOST_TEST(draw_erased_box(random, 0, {.channels = 3, .height = 90, .width = 90}).is_empty());
}

BOOST_AUTO_TEST_CASE(a_box_is_erased_in_both_layouts) {
  const ImageShape image{.channels = 3, .height = 5, .width = 4};
  const PixelBox box{.top = 1, .left = 2, .height = 3, .width = 2};
  for (const ImageLayout layout : {ImageLayout::nchw, ImageLayout::nhwc}) {
    std::vector<float> values(60, 7);

    erase_box(box, image, layout, values.data());

    for (std::int64_t i = 0; i < 60; ++i) {
      const std::int64_t pixel = layout == ImageLayout::nchw ? i % 20 : i / 3;
      const float expected = box.contains(pixel / 4, pixel % 4) ? 0.0F : 7.0F;
      BOOST_REQUIRE_EQUAL(values[static_cast<std::size_t>(i)], expected);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_image_too_long_for_any_ratio_gives_its_centre) {
  PhiloxStream random = augmentation_stream(1, 0, {});

  const Region tall = draw_resized_crop(random, {.channels = 3, .height = 1000, .width = 30});
  const Region wide = draw_resized_crop(random, {.channels = 3, .height = 30, .width = 1000});

  BOOST_TEST((tall == Region{.top = 480, .left = 0, .height = 40, .width = 30}));
  BOOST_TEST((wide == Region{.top = 0, .left = 480, .height = 30, .width = 40}));
}

BOOST_AUTO_TEST_CASE(centres_round_half_pixels_to_even_as_torchvision_does) {
  const ImageShape image{.channels = 1, .height = 7, .width = 9};

  BOOST_TEST((centre_region(image, 4, 4) == Region{.top = 2, .left = 2, .height = 4, .width = 4}));
  BOOST_TEST((centre_region(image, 2, 2) == Region{.top = 2, .left = 4, .height = 2, .width = 2}));
}
