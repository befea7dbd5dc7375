#include "lockstep/data/resample.hpp"

#include "lockstep/core/philox.hpp"
#include "lockstep/core/resample_taps.hpp"

#include <boost/test/unit_test.hpp>

#include <vector>

using namespace lockstep;

// CTest runs this program once per instruction set of the processor (LOCKSTEP_TEST_VECTORS).

namespace {

std::vector<std::byte> random_pixels(const ImageShape& shape, std::uint64_t seed) {
  PhiloxStream random(seed, RandomPurpose::synthetic_data, 0, 0);
  std::vector<std::byte> pixels(
      static_cast<std::size_t>(shape.height * shape.width * shape.channels));
  for (std::byte& pixel : pixels) pixel = static_cast<std::byte>(random.next_below(256));
  return pixels;
}

ResampleTaps taps(const AxisResize& axis, std::int64_t i, ResampleFilter filter) {
  return {axis.source, axis.size, axis.at + i, filter};
}

/// One value of the result, summed in the order of the two passes, as a device computes it.
std::uint8_t expected_pixel(const std::vector<std::byte>& pixels, const ImageShape& shape,
                            const ImageResize& how, const ResampleTaps& rows,
                            const ResampleTaps& columns, std::int64_t channel) {
  volatile float sum = 0.5F;  // volatile: nothing is fused
  for (std::int64_t i = 0; i < rows.count; ++i) {
    volatile float line = 0;
    for (std::int64_t j = 0; j < columns.count; ++j) {
      const std::int64_t y = how.rows.first + rows.first + i;
      const std::int64_t x = how.columns.first + columns.first + j;
      const auto pixel = std::to_integer<std::uint8_t>(
          pixels[static_cast<std::size_t>((y * shape.width + x) * shape.channels + channel)]);
      const volatile float product = columns.weight(j) * static_cast<float>(pixel);
      line = line + product;
    }
    if (how.filter == ResampleFilter::bicubic) line = clamp_sum(line);
    const volatile float product = rows.weight(i) * line;
    sum = sum + product;
  }
  return to_pixel(sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_part_of_any_resized_region_has_the_bits_of_a_plain_sum) {
  struct Case {
    ImageShape image;
    Region region;
    std::int64_t height;
    std::int64_t width;
    Region window = {};  ///< empty: all of height x width
  };
  const std::vector<Case> cases{
      {.image = {3, 1, 1}, .region = {0, 0, 1, 1}, .height = 3, .width = 2},
      {.image = {1, 5, 7}, .region = {1, 2, 3, 4}, .height = 1, .width = 1},
      {.image = {3, 33, 40}, .region = {0, 0, 33, 40}, .height = 16, .width = 16},
      {.image = {3, 33, 40}, .region = {5, 7, 17, 33}, .height = 21, .width = 23},
      {.image = {1, 64, 64}, .region = {3, 3, 48, 31}, .height = 90, .width = 17},
      {.image = {3, 200, 20}, .region = {1, 0, 199, 20}, .height = 2, .width = 19},
      {.image = {3, 20, 300}, .region = {0, 9, 20, 290}, .height = 40, .width = 3},
      {.image = {2, 50, 50}, .region = {0, 0, 50, 50}, .height = 35, .width = 49},
      {.image = {3, 70, 90},
       .region = {0, 0, 70, 90},
       .height = 32,
       .width = 41,
       .window = {2, 6, 28, 28}},
      {.image = {1, 20, 9},
       .region = {1, 2, 18, 7},
       .height = 50,
       .width = 30,
       .window = {49, 0, 1, 3}},
      {.image = {3, 3, 400},
       .region = {0, 0, 3, 400},
       .height = 12,
       .width = 1600,
       .window = {1, 795, 10, 10}},
  };
  Resampler resampler;
  Image result;
  for (const auto& [image, region, height, width, part] : cases) {
    for (const ResampleFilter filter : {ResampleFilter::bilinear, ResampleFilter::bicubic}) {
      const auto pixels = random_pixels(image, static_cast<std::uint64_t>(height * 100 + width));
      ImageResize how = resize_of(region, {.height = height, .width = width}, filter);
      how.rows.at = static_cast<std::int32_t>(part.top);
      how.columns.at = static_cast<std::int32_t>(part.left);
      const bool whole = part == Region{};
      const ImageShape target{.channels = image.channels,
                              .height = whole ? height : part.height,
                              .width = whole ? width : part.width};

      resampler.resize(pixels, image, how, target, result);

      BOOST_TEST((result.shape == target));
      std::size_t at = 0;
      for (std::int64_t y = 0; y < target.height; ++y) {
        const ResampleTaps rows = taps(how.rows, y, filter);
        for (std::int64_t x = 0; x < target.width; ++x) {
          const ResampleTaps columns = taps(how.columns, x, filter);
          for (std::int64_t c = 0; c < image.channels; ++c, ++at) {
            BOOST_REQUIRE_EQUAL(std::to_integer<int>(result.pixels[at]),
                                int{expected_pixel(pixels, image, how, rows, columns, c)});
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(only_pixels_with_an_influence_are_needed) {
  // Of 100 x 300 pixels resized to 50 x 150, the window's 10 x 20 pixels at (20, 65) are made of
  // rows 39 to 60 and columns 129 to 170: a pixel beyond 2 for each of theirs.
  const ImageShape target{.height = 10, .width = 20};

  const ImageResize how = centre_of_resized({.channels = 3, .height = 100, .width = 300}, 50,
                                            target, ResampleFilter::bilinear);

  BOOST_TEST((how.rows == AxisResize{.first = 0, .source = 100, .size = 50, .at = 20}));
  BOOST_TEST((how.columns == AxisResize{.first = 0, .source = 300, .size = 150, .at = 65}));
  BOOST_TEST((source_region(how, target) == Region{39, 129, 22, 42}));
}

BOOST_AUTO_TEST_CASE(resampling_keeps_a_constant_and_its_own_size) {
  const ImageShape shape{.channels = 3, .height = 13, .width = 9};
  const std::vector<std::byte> grey(13 * 9 * 3, std::byte{77});
  const auto pixels = random_pixels(shape, 1);
  const Region all{.top = 0, .left = 0, .height = 13, .width = 9};
  Resampler resampler;
  Image result;

  for (const std::int64_t size : {1, 4, 9, 30}) {
    const ImageShape target{.height = size, .width = size + 1};
    for (const ResampleFilter filter : {ResampleFilter::bilinear, ResampleFilter::bicubic}) {
      resampler.resize(grey, shape, resize_of(all, target, filter), target, result);
      BOOST_REQUIRE_EQUAL(result.pixels.size(), static_cast<std::size_t>(size * (size + 1) * 3));
      for (const std::byte value : result.pixels) BOOST_REQUIRE(value == std::byte{77});
    }
  }
  for (const ResampleFilter filter : {ResampleFilter::bilinear, ResampleFilter::bicubic}) {
    resampler.resize(pixels, shape, resize_of(all, shape, filter), shape, result);
    BOOST_TEST((result.pixels == pixels));
  }
}

BOOST_AUTO_TEST_CASE(halving_averages_with_the_triangle_filter) {
  // Pillow's bilinear filter from 4 pixels to 2 has the weights 3, 3 and 1 at an edge: (3 a + 3 b +
  // c) / 7.
  const ImageShape shape{.channels = 1, .height = 1, .width = 4};
  const std::vector<std::byte> pixels{std::byte{0}, std::byte{70}, std::byte{140}, std::byte{210}};
  Resampler resampler;
  Image result;

  const ImageShape target{.height = 1, .width = 2};
  resampler.resize(pixels, shape,
                   resize_of({.height = 1, .width = 4}, target, ResampleFilter::bilinear), target,
                   result);

  BOOST_TEST(std::to_integer<int>(result.pixels[0]) == 50);
  BOOST_TEST(std::to_integer<int>(result.pixels[1]) == 160);
}
