#include "lockstep/data/encode.hpp"

#include "data/shard_fixture.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A smooth image, as JPEG is made for.
Image gradient(std::int64_t height, std::int64_t width) {
  Image image{.shape = {.channels = 3, .height = height, .width = width}, .pixels = {}};
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      for (const std::int64_t value : {y * 255 / height, x * 255 / width, 100L}) {
        image.pixels.push_back(static_cast<std::byte>(value));
      }
    }
  }
  return image;
}

std::span<const std::byte> bytes_of(const std::vector<std::uint8_t>& file) {
  return std::as_bytes(std::span(file));
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_encoded_image_decodes_to_nearly_the_same_pixels) {
  const Image image = gradient(37, 50);
  std::vector<std::byte> file;
  Image decoded;

  encode_jpeg(image, 90, file);

  decode_jpeg(file, 3, decoded);
  BOOST_TEST((decoded.shape == image.shape));
  BOOST_REQUIRE_EQUAL(decoded.pixels.size(), image.pixels.size());
  double difference = 0;
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    difference +=
        std::abs(std::to_integer<int>(image.pixels[i]) - std::to_integer<int>(decoded.pixels[i]));
  }
  BOOST_TEST(difference / static_cast<double>(image.pixels.size()) < 2);
}

BOOST_AUTO_TEST_CASE(the_same_pixels_give_the_same_bytes_and_quality_changes_them) {
  const Image image = gradient(64, 64);
  std::vector<std::byte> once;
  std::vector<std::byte> again(5, std::byte{1});
  std::vector<std::byte> better;

  encode_jpeg(image, 90, once);
  encode_jpeg(image, 90, again);
  encode_jpeg(image, 100, better);

  BOOST_TEST((once == again));
  BOOST_TEST(once.size() < better.size());
}

BOOST_AUTO_TEST_CASE(an_image_that_is_too_long_for_jpeg_is_refused) {
  const Image image = gradient(1, 65'501);
  std::vector<std::byte> file;

  const Failure failure = failure_of([&] { encode_jpeg(image, 90, file); });

  BOOST_TEST(static_cast<int>(failure.status) == 65);
  BOOST_TEST(failure.says("1x65501"), failure.text);
}

BOOST_AUTO_TEST_CASE(the_components_of_a_jpeg_file_are_those_of_its_frame_header) {
  for (const int stored : {1, 3, 4}) {
    BOOST_TEST(jpeg_components(bytes_of(
                   flat_jpeg({.height = 9, .width = 7, .channels = stored}, 50))) == stored);
  }
  auto file = flat_jpeg({.height = 9, .width = 7, .channels = 4}, 50);
  const std::vector<std::uint8_t> comment{0xFF, 0xFE, 0x00, 0x05, 0xFF, 0xC0, 0x01};
  file.insert(file.begin() + 2, comment.begin(), comment.end());
  BOOST_TEST(jpeg_components(bytes_of(file)) == 4);
  for (std::size_t size = 0; size < 40; ++size) {
    BOOST_TEST(jpeg_components(bytes_of(file).first(size)) == 0);
  }
}
