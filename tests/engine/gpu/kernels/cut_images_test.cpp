#include "kernel_values.hpp"
#include "lockstep/data/augment.hpp"
#include "lockstep/data/mix.hpp"
#include "lockstep/data/resample.hpp"

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

struct Images {
  ImageShape stored;
  std::vector<std::uint8_t> pixels;
  std::vector<PixelCut> cuts;
  std::vector<PixelBox> erased;  ///< empty: no erasing
  std::vector<ImageMix> mixes;   ///< empty: no mixing
  std::vector<float> mean;
  std::vector<float> std;
};

Images random_images(const ImageShape& stored, std::int64_t count, std::uint64_t seed) {
  PhiloxStream random(seed, RandomPurpose::augmentation, 0, 0);
  Images images;
  images.stored = stored;
  images.pixels.resize(
      static_cast<std::size_t>(count * stored.channels * stored.height * stored.width));
  for (auto& pixel : images.pixels) pixel = static_cast<std::uint8_t>(random.next_below(256));
  for (std::int64_t c = 0; c < stored.channels; ++c) {
    images.mean.push_back(0.1F + 0.07F * static_cast<float>(c));
    images.std.push_back(0.5F - 0.01F * static_cast<float>(c));
  }
  return images;
}

std::span<const std::byte> pixels_of(const Images& images, std::size_t image) {
  const auto bytes =
      static_cast<std::size_t>(images.stored.channels * images.stored.height * images.stored.width);
  return std::as_bytes(std::span(images.pixels)).subspan(image * bytes, bytes);
}

/// The values that the loader computes on the CPU for the cuts, (N, H, W, C).
std::vector<float> values_on_cpu(const Images& images, const ImageShape& network) {
  const Normalizer normalizer(images.mean, images.std);
  Resampler resampler;
  Image resized;
  std::vector<float> values;
  const auto size = static_cast<std::size_t>(network.channels * network.height * network.width);
  for (std::size_t n = 0; n < images.cuts.size(); ++n) {
    const PixelCut& cut = images.cuts[n];
    std::span<const std::byte> pixels = pixels_of(images, n);
    ImageShape shape = images.stored;
    Window window{.top = cut.top, .left = cut.left, .flip = cut.flip != 0};
    if (cut.height != network.height || cut.width != network.width) {
      const Region region{
          .top = cut.top, .left = cut.left, .height = cut.height, .width = cut.width};
      resampler.resize(pixels, shape, lockstep::resize_of(region, network, cut.filter), network,
                       resized);
      pixels = resized.pixels;
      shape = resized.shape;
      window.top = window.left = 0;
    }
    values.resize(values.size() + size);
    normalizer.write(pixels, shape, window, {.shape = network, .layout = ImageLayout::nhwc},
                     values.data() + n * size);
  }
  for (std::size_t n = 0; n < images.erased.size(); ++n) {
    erase_box(images.erased[n], network, ImageLayout::nhwc, values.data() + n * size);
  }
  for (std::size_t n = 0; n + 1 < images.mixes.size(); n += 2) {
    mix_pair(images.mixes[n], network, ImageLayout::nhwc, values.data() + n * size,
             values.data() + (n + 1) * size);
  }
  return values;
}

/// Every value must be the CPU's, rounded to the type; padding and images after the last cut must
/// be 0.
void check_against_cpu(const Images& images, const ImageShape& network, DataType type) {
  const auto count = static_cast<std::int64_t>(images.cuts.size());
  const ImageExtent extent{.batch = count + 2,
                           .height = network.height,
                           .width = network.width,
                           .channels = network.channels,
                           .padded = padded_channels(network.channels)};
  const std::vector<float> expected = values_on_cpu(images, network);
  const Normalizer normalizer(images.mean, images.std);
  Values out(type, extent.batch * extent.height * extent.width * extent.padded);
  Mirrored<std::byte> workspace =
      poisoned_bytes(cut_images_workspace(extent, images.stored.height, images.stored.width));

  const Mirrored<std::uint8_t> pixels(images.pixels);
  const Mirrored<PixelCut> cuts(images.cuts);
  const Mirrored<float> values(
      std::vector<float>(normalizer.values().begin(), normalizer.values().end()));
  const Mirrored<PixelBox> erased(images.erased);
  const Mirrored<ImageMix> mixes(images.mixes);

  cut_images(kernel_stream(), type, extent,
             {.data = pixels.data(),
              .height = images.stored.height,
              .width = images.stored.width,
              .cuts = cuts.data(),
              .values = values.data(),
              .count = count,
              .workspace = workspace.data(),
              .erased = images.erased.empty() ? nullptr : erased.data(),
              .mixes = images.mixes.empty() ? nullptr : mixes.data()},
             out.data());

  Values one(type, 1);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const std::int64_t pixel = i / extent.padded;
    const std::int64_t c = i % extent.padded;
    const bool blank = c >= extent.channels || pixel >= count * extent.height * extent.width;
    one.set(0, blank ? 0.0
                     : static_cast<double>(
                           expected[static_cast<std::size_t>(pixel * extent.channels + c)]));
    if (!(out[i] == one[0])) ++wrong;
  }
  BOOST_TEST(wrong == 0);
}

void check_all_types(const Images& images, const ImageShape& network) {
  for (const DataType type : all_types) {
    BOOST_TEST_CONTEXT(type << ", " << images.stored.channels << " channels of "
                            << images.stored.height << "x" << images.stored.width << " to "
                            << network.height << "x" << network.width) {
      check_against_cpu(images, network, type);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cutting)

BOOST_AUTO_TEST_CASE(crops_and_flips_match_the_cpu) {
  for (const std::int64_t channels : {1, 3, 10}) {
    const ImageShape network{.channels = channels, .height = 9, .width = 7};
    Images images = random_images({.channels = channels, .height = 11, .width = 8}, 8, 1);
    for (const auto& [top, left] : std::vector<std::pair<int, int>>{
             {0, 0}, {2, 1}, {-3, -2}, {5, 4}, {-20, 0}, {0, 30}, {1, -7}, {-9, 1}}) {
      images.cuts.push_back({.top = top,
                             .left = left,
                             .height = 9,
                             .width = 7,
                             .flip = static_cast<std::int32_t>(images.cuts.size() % 2)});
    }
    check_all_types(images, network);
  }
}

BOOST_AUTO_TEST_CASE(erased_and_mixed_pairs_match_the_cpu_exactly) {
  for (const std::int64_t channels : {1, 3, 10}) {
    for (const auto& [height, width] : {std::pair{9, 7}, std::pair{6, 5}}) {  // copied, resampled
      const ImageShape network{.channels = channels, .height = 9, .width = 7};
      Images images = random_images({.channels = channels, .height = 11, .width = 8}, 9, 1);
      PhiloxStream random(4, RandomPurpose::mixing, 0, 0);
      for (std::int32_t n = 0; n < 9; ++n) {
        images.cuts.push_back(
            {.top = n % 3, .left = n % 2, .height = height, .width = width, .flip = n / 2 % 2});
        ImageMix mix =
            n % 2 == 1
                ? images.mixes.back()
                : draw_mix(random, n % 4 == 0 ? MixOptions{.mixup = 0.4} : MixOptions{.cutmix = 1},
                           network);
        if (n == 8) mix = {};  // without a partner
        mix.partner = n == 8 ? n : n ^ 1;
        images.mixes.push_back(mix);
        images.erased.push_back(draw_erased_box(random, 0.7, network));
      }
      check_all_types(images, network);
    }
  }
}

BOOST_AUTO_TEST_CASE(resampled_cuts_match_the_cpu_exactly) {
  for (const std::int64_t channels : {1, 3, 5}) {
    const ImageShape network{.channels = channels, .height = 24, .width = 20};
    const ImageShape stored{.channels = channels, .height = 61, .width = 83};
    Images images = random_images(stored, 40, 2);
    PhiloxStream random(3, RandomPurpose::augmentation, 0, 0);
    for (int n = 0; n < 40; ++n) {
      const Region region = draw_resized_crop(random, stored);
      images.cuts.push_back(
          {.top = static_cast<std::int32_t>(region.top),
           .left = static_cast<std::int32_t>(region.left),
           .height = static_cast<std::int32_t>(region.height),
           .width = static_cast<std::int32_t>(region.width),
           .flip = n % 2,
           .filter = n % 3 == 0 ? ResampleFilter::bicubic : ResampleFilter::bilinear});
    }
    images.cuts[0] = {.top = 60, .left = 82, .height = 1, .width = 1, .flip = 1};
    images.cuts[1] = {.top = 0, .left = 0, .height = 61, .width = 83, .flip = 0};
    images.cuts[2] = images.cuts[1];
    images.cuts[2].filter = ResampleFilter::bicubic;
    check_all_types(images, network);
  }
}

BOOST_AUTO_TEST_SUITE_END()
