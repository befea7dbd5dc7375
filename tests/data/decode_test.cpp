#include "lockstep/data/decode.hpp"

#include "data/shard_fixture.hpp"
#include "lockstep/core/philox.hpp"

#include <png.h>
#include <zlib.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::span<const std::byte> bytes_of(const std::vector<std::uint8_t>& file) {
  return std::as_bytes(std::span(file));
}

std::vector<std::uint8_t> png_of(const std::vector<std::uint8_t>& pixels, std::uint32_t format) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = 3;
  image.height = 2;
  image.format = format;
  png_alloc_size_t size = 0;
  BOOST_REQUIRE(png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr));
  std::vector<std::uint8_t> file(size);
  BOOST_REQUIRE(
      png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr));
  return file;
}

}  // namespace

BOOST_AUTO_TEST_CASE(jpeg_of_each_colour_space_decodes_to_one_and_three_channels) {
  for (const int stored : {1, 3, 4}) {
    for (const std::int64_t wanted : {1, 3}) {
      const auto file = flat_jpeg({.height = 17, .width = 11, .channels = stored}, 120);
      Image image;

      decode_jpeg(bytes_of(file), wanted, image);

      BOOST_TEST((image.shape == ImageShape{.channels = wanted, .height = 17, .width = 11}));
      BOOST_REQUIRE_EQUAL(image.pixels.size(), static_cast<std::size_t>(17 * 11 * wanted));
      // CMYK written with an Adobe marker: inverted ink, 120 * 120 / 255.
      const int expected = stored == 4 ? 56 : 120;
      for (const std::byte pixel : image.pixels) {
        BOOST_REQUIRE_LE(std::abs(std::to_integer<int>(pixel) - expected), 2);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_region_of_a_jpeg_has_the_pixels_of_the_whole_image) {
  PhiloxStream random(1, RandomPurpose::synthetic_data, 0, 0);
  const auto below = [&](std::int64_t end) -> std::int64_t {
    return random.next_below(static_cast<std::uint32_t>(end));
  };
  JpegDecoder decoder;
  Image whole;
  Image part;
  for (const auto& [horizontal, vertical] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}}) {
    for (const int channels : {1, 3, 4}) {
      for (const bool progressive : {false, true}) {
        const int height = 50 + 31 * horizontal;
        const int width = 83 + 10 * channels;
        const auto file = jpeg_of(
            {height, width, channels},
            {.quality = 80,
             .horizontal = horizontal,
             .vertical = vertical,
             .progressive = progressive},
            [&](std::size_t, std::size_t) { return static_cast<std::uint8_t>(below(256)); });
        const std::int64_t wanted = channels == 1 ? 1 : 3;
        decode_jpeg(bytes_of(file), wanted, whole);
        for (int attempt = 0; attempt < 40; ++attempt) {
          Region region{.top = below(height), .left = below(width)};
          region.height = 1 + below(height - region.top);
          region.width = 1 + below(width - region.left);

          BOOST_REQUIRE((decoder.open(bytes_of(file), wanted) == whole.shape));
          const Region place = decoder.decode(region, part);

          BOOST_REQUIRE_EQUAL(place.height, region.height);
          BOOST_REQUIRE_EQUAL(place.width, region.width);
          for (std::int64_t y = 0; y < region.height; ++y) {
            const auto row = [&](const Image& image, std::int64_t top, std::int64_t left) {
              return std::span(image.pixels)
                  .subspan(
                      static_cast<std::size_t>(((top + y) * image.shape.width + left) * wanted),
                      static_cast<std::size_t>(region.width * wanted));
            };
            BOOST_REQUIRE(std::ranges::equal(row(part, place.top, place.left),
                                             row(whole, region.top, region.left)));
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_decoder_reads_on_after_a_damaged_file) {
  const auto good = flat_jpeg({.height = 64, .width = 64, .channels = 3}, 30);
  const auto damaged = bytes_of(good).first(good.size() / 2);
  JpegDecoder decoder;
  Image image;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Failure failure = failure_of([&] {
      const ImageShape shape = decoder.open(damaged, 3);
      decoder.decode({.height = shape.height, .width = shape.width}, image);
    });
    BOOST_TEST(failure.says("not a whole JPEG file"), failure.text);

    BOOST_TEST((decoder.open(bytes_of(good), 3) == ImageShape{3, 64, 64}));
    const Region place = decoder.decode({.top = 8, .left = 9, .height = 7, .width = 6}, image);
    const std::int64_t first = (place.top * image.shape.width + place.left) * 3;
    BOOST_TEST(std::abs(std::to_integer<int>(image.pixels[static_cast<std::size_t>(first)]) - 30) <=
               2);
  }
}

BOOST_AUTO_TEST_CASE(a_damaged_jpeg_is_bad_input_at_any_length) {
  const auto file = flat_jpeg({.height = 64, .width = 64, .channels = 3}, 30);
  Image image;

  for (std::size_t size = 0; size + 2 < file.size(); size += 7) {
    const Failure failure = failure_of([&] { decode_jpeg(bytes_of(file).first(size), 3, image); });
    BOOST_TEST(static_cast<int>(failure.status) == 65, size << " of " << file.size());
  }
}

BOOST_AUTO_TEST_CASE(a_jpeg_header_with_a_huge_size_allocates_no_memory) {
  auto file = flat_jpeg({.height = 8, .width = 8, .channels = 3}, 30);
  for (std::size_t i = 0; i + 9 < file.size(); ++i) {
    if (file[i] == 0xFF && file[i + 1] == 0xC0) {  // start of frame: height and width follow
      file[i + 5] = file[i + 6] = file[i + 7] = file[i + 8] = 0xFF;
      break;
    }
  }
  Image image;

  const Failure failure = failure_of([&] { decode_jpeg(bytes_of(file), 3, image); });

  BOOST_TEST(static_cast<int>(failure.status) == 65);
  BOOST_TEST(image.pixels.size() == 0u);
}

BOOST_AUTO_TEST_CASE(a_jpeg_of_many_scans_is_refused_after_a_hundred) {
  const auto file =
      jpeg_of({.height = 64, .width = 64, .channels = 3}, {.progressive = true},
              [](std::size_t y, std::size_t i) { return static_cast<std::uint8_t>(y * i); });
  const auto scans_of = [](const std::vector<std::uint8_t>& jpeg) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i + 1 < jpeg.size(); ++i) {
      if (jpeg[i] == 0xFF && jpeg[i + 1] == 0xDA) places.push_back(i);
    }
    return places;
  };
  const std::vector<std::size_t> scans = scans_of(file);
  const std::vector<std::uint8_t> last(file.begin() + static_cast<std::ptrdiff_t>(scans.back()),
                                       file.end() - 2);
  // The last scan again and again, as nothing in the format forbids.
  const auto with_scans = [&](std::size_t count) {
    std::vector<std::uint8_t> longer(file.begin(), file.end() - 2);
    for (std::size_t i = scans.size(); i < count; ++i) {
      longer.insert(longer.end(), last.begin(), last.end());
    }
    longer.insert(longer.end(), file.end() - 2, file.end());
    return longer;
  };
  Image image;

  decode_jpeg(bytes_of(with_scans(100)), 3, image);
  const Failure failure = failure_of([&] { decode_jpeg(bytes_of(with_scans(101)), 3, image); });

  BOOST_TEST(static_cast<int>(failure.status) == 65);
  BOOST_TEST(failure.says("more than 100 scans"), failure.text);
}

BOOST_AUTO_TEST_CASE(an_image_too_short_for_the_size_in_its_header_allocates_no_memory) {
  auto jpeg = jpeg_of({.height = 8, .width = 8, .channels = 3}, {.progressive = true},
                      [](std::size_t, std::size_t) { return std::uint8_t{30}; });
  for (std::size_t i = 0; i + 9 < jpeg.size(); ++i) {
    if (jpeg[i] != 0xFF || jpeg[i + 1] != 0xC2) continue;  // start of frame
    jpeg[i + 5] = jpeg[i + 7] = 0x1F;                      // 7936 pixels and more
    break;
  }
  auto png = png_of(std::vector<std::uint8_t>(18, 5), PNG_FORMAT_RGB);
  png[18] = png[22] = 0x1F;  // width and height in IHDR
  const std::uint32_t crc = static_cast<std::uint32_t>(crc32(0, png.data() + 12, 17));
  for (std::size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<std::uint8_t>(crc >> (24 - 8 * i));
  Image image;

  const Failure in_jpeg = failure_of([&] { decode_jpeg(bytes_of(jpeg), 3, image); });
  const Failure in_png = failure_of([&] { decode_png(bytes_of(png), image); });

  BOOST_TEST(in_jpeg.says("cannot hold 7944x7944 pixels"), in_jpeg.text);
  BOOST_TEST(in_png.says("cannot hold 7938x7939 pixels"), in_png.text);
  BOOST_TEST(image.pixels.capacity() == 0u);
}

BOOST_AUTO_TEST_CASE(images_of_one_colour_are_not_too_short_for_their_size) {
  const auto jpeg = flat_jpeg({.height = 2000, .width = 2000, .channels = 3}, 30);
  const auto progressive =
      jpeg_of({.height = 2000, .width = 2000, .channels = 3}, {.progressive = true},
              [](std::size_t, std::size_t) { return std::uint8_t{30}; });
  Image image;

  decode_jpeg(bytes_of(jpeg), 3, image);
  decode_jpeg(bytes_of(progressive), 3, image);

  BOOST_TEST(image.pixels.size() == 12'000'000u);
}

BOOST_AUTO_TEST_CASE(png_is_read_exactly) {
  const std::vector<std::uint8_t> rgb{1, 2, 3, 40, 50, 60, 7, 8, 9, 255, 0, 9, 8, 7, 6, 5, 4, 3};
  Image image;

  decode_png(bytes_of(png_of(rgb, PNG_FORMAT_RGB)), image);

  BOOST_TEST((image.shape == ImageShape{.channels = 3, .height = 2, .width = 3}));
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    BOOST_TEST(std::to_integer<int>(image.pixels[i]) == rgb[i]);
  }
  const std::vector<std::uint8_t> grey{1, 2, 3, 100, 200, 255};
  decode_png(bytes_of(png_of(grey, PNG_FORMAT_GRAY)), image);
  for (std::size_t i = 0; i < 18; ++i) {
    BOOST_TEST(std::to_integer<int>(image.pixels[i]) == grey[i / 3]);
  }
}

BOOST_AUTO_TEST_CASE(a_png_with_alpha_keeps_its_colours) {
  const std::vector<std::uint8_t> rgba{1,   2, 3, 0,   40, 50, 60, 128, 7, 8, 9, 255,
                                       255, 0, 9, 254, 8,  7,  6,  1,   5, 4, 3, 0};
  Image image;

  decode_png(bytes_of(png_of(rgba, PNG_FORMAT_RGBA)), image);

  BOOST_REQUIRE_EQUAL(image.pixels.size(), 18u);
  for (std::size_t i = 0; i < 18; ++i) {
    BOOST_TEST(std::to_integer<int>(image.pixels[i]) == rgba[i / 3 * 4 + i % 3]);
  }
}

BOOST_AUTO_TEST_CASE(a_png_of_sixteen_bits_keeps_their_high_byte) {
  // As libpng writes linear pixels: big-endian in the file, with a gamma of 1.
  const std::vector<std::uint16_t> grey{0x0000, 0x00ff, 0x1234, 0x80ff, 0xfeff, 0xffff};
  std::vector<std::uint8_t> bytes(12);
  std::memcpy(bytes.data(), grey.data(), 12);
  Image image;

  decode_png(bytes_of(png_of(bytes, PNG_FORMAT_LINEAR_Y)), image);

  BOOST_REQUIRE_EQUAL(image.pixels.size(), 18u);
  for (std::size_t i = 0; i < 18; ++i) {
    BOOST_TEST(std::to_integer<int>(image.pixels[i]) == grey[i / 3] >> 8);
  }
}

BOOST_AUTO_TEST_CASE(a_truncated_png_is_bad_input) {
  const auto file = png_of(std::vector<std::uint8_t>(18, 5), PNG_FORMAT_RGB);
  Image image;

  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, file.size() / 2}) {
    const Failure failure = failure_of([&] { decode_png(bytes_of(file).first(size), image); });
    BOOST_TEST(static_cast<int>(failure.status) == 65);
  }
}
