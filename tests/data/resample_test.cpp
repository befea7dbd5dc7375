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

/// One value of the result, summed in the order of the two passes, as a device computes it.
std::uint8_t expected_pixel(const std::vector<std::byte>& pixels, const ImageShape& shape,
                            const Region& region, const ResampleTaps& rows,
                            const ResampleTaps& columns, std::int64_t channel) {
  volatile float sum = 0.5F;  // volatile: nothing is fused
  for (std::int64_t i = 0; i < rows.count; ++i) {
    volatile float line = 0;
    for (std::int64_t j = 0; j < columns.count; ++j) {
      const std::int64_t y = region.top + rows.first + i;
      const std::int64_t x = region.left + columns.first + j;
      const auto pixel = std::to_integer<std::uint8_t>(
          pixels[static_cast<std::size_t>((y * shape.width + x) * shape.channels + channel)]);
      const volatile float product = columns.weight(j) * static_cast<float>(pixel);
      line = line + product;
    }
    const volatile float product = rows.weight(i) * line;
    sum = sum + product;
  }
  return to_pixel(sum);
}

}  // namespace

BOOST_AUTO_TEST_CASE(any_region_is_resampled_to_the_bits_of_a_plain_sum) {
  struct Case {
    ImageShape image;
    Region region;
    std::int64_t height;
    std::int64_t width;
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
  };
  Resampler resampler;
  Image result;
  for (const auto& [image, region, height, width] : cases) {
    const auto pixels = random_pixels(image, static_cast<std::uint64_t>(height * 100 + width));

    resampler.resize(pixels, image, region, {.height = height, .width = width}, result);

    BOOST_TEST(
        (result.shape == ImageShape{.channels = image.channels, .height = height, .width = width}));
    std::size_t at = 0;
    for (std::int64_t y = 0; y < height; ++y) {
      const ResampleTaps rows(region.height, height, y);
      for (std::int64_t x = 0; x < width; ++x) {
        const ResampleTaps columns(region.width, width, x);
        for (std::int64_t c = 0; c < image.channels; ++c, ++at) {
          BOOST_REQUIRE_EQUAL(std::to_integer<int>(result.pixels[at]),
                              int{expected_pixel(pixels, image, region, rows, columns, c)});
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(resampling_keeps_a_constant_and_its_own_size) {
  const ImageShape shape{.channels = 3, .height = 13, .width = 9};
  const std::vector<std::byte> grey(13 * 9 * 3, std::byte{77});
  const auto pixels = random_pixels(shape, 1);
  const Region all{.top = 0, .left = 0, .height = 13, .width = 9};
  Resampler resampler;
  Image result;

  for (const std::int64_t size : {1, 4, 9, 30}) {
    resampler.resize(grey, shape, all, {.height = size, .width = size + 1}, result);
    BOOST_REQUIRE_EQUAL(result.pixels.size(), static_cast<std::size_t>(size * (size + 1) * 3));
    for (const std::byte value : result.pixels) BOOST_REQUIRE(value == std::byte{77});
  }
  resampler.resize(pixels, shape, all, {.height = 13, .width = 9}, result);

  BOOST_TEST((result.pixels == pixels));
}

BOOST_AUTO_TEST_CASE(halving_averages_with_the_triangle_filter) {
  // Pillow's bilinear filter from 4 pixels to 2 has the weights 3, 3 and 1 at an edge: (3 a + 3 b +
  // c) / 7.
  const ImageShape shape{.channels = 1, .height = 1, .width = 4};
  const std::vector<std::byte> pixels{std::byte{0}, std::byte{70}, std::byte{140}, std::byte{210}};
  Resampler resampler;
  Image result;

  resampler.resize(pixels, shape, {.height = 1, .width = 4}, {.height = 1, .width = 2}, result);

  BOOST_TEST(std::to_integer<int>(result.pixels[0]) == 50);
  BOOST_TEST(std::to_integer<int>(result.pixels[1]) == 160);
}
