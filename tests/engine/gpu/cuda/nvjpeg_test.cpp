// nvJPEG's pixels against libjpeg's, and the resizing kernel against the CPU, on a GPU.
#include "data/shard_fixture.hpp"
#include "engine/gpu/batch_decoder.hpp"
#include "engine/gpu/cuda/cuda_device.hpp"
#include "engine/gpu/cuda/nvjpeg_library.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"
#include "lockstep/data/resample.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;
using namespace lockstep::gpu::cuda;
using namespace lockstep::test;

namespace {

using File = std::vector<std::uint8_t>;

[[nodiscard]] bool skipped(const char* why) {
  std::fprintf(stderr, "skipped: %s\n", why);
  if (std::getenv("LOCKSTEP_TEST_ENGINES") != nullptr) std::_Exit(77);  // a GPU was asked for
  return true;
}

/// No GPU, or no nvJPEG.
bool is_impossible() {
  int visible = 0;
  if (cudaGetDeviceCount(&visible) != cudaSuccess || visible == 0) {
    (void)cudaGetLastError();
    return skipped("no usable GPU on this host");
  }
  try {
    static_cast<void>(load_nvjpeg(0));
    return false;
  } catch (const Error& error) {
    return skipped(error.what());
  }
}

/// Smooth colours with detail, like a photograph.
File photograph(int seed, const JpegSize& size, const JpegForm& form) {
  return jpeg_of(size, form, [&](std::size_t y, std::size_t i) {
    const double row = static_cast<double>(y);
    const double column = static_cast<double>(i) / size.channels;
    const auto channel = static_cast<double>(i % static_cast<std::size_t>(size.channels));
    const double value = 128 + 60 * std::sin(row / 37 + seed + channel) +
                         40 * std::cos(column / 23 + channel * 0.7) +
                         12 * std::sin(row * 0.9) * std::cos(column * 1.1 + seed);
    return static_cast<JSAMPLE>(std::clamp(value, 0.0, 255.0));
  });
}

Image decoded_on_host(const File& file) {
  Image image;
  decode_jpeg(std::as_bytes(std::span(file)), 3, image);
  return image;
}

/// All of it, resized to height x width.
EncodedImage whole(const File& file, std::int64_t height, std::int64_t width) {
  const ImageShape shape = decoded_on_host(file).shape;
  return {.file = std::as_bytes(std::span(file)).data(),
          .bytes = file.size(),
          .height = static_cast<std::int32_t>(shape.height),
          .width = static_cast<std::int32_t>(shape.width),
          .resize = resize_of({.height = shape.height, .width = shape.width},
                              {.height = height, .width = width}, ResampleFilter::bilinear)};
}

/// Decodes images on the GPU, each to (height, width, 3).
class OnDevice final {
 public:
  explicit OnDevice(std::optional<JpegBackend> backend)
      : device_({}), decoder_(device_, {.backend = backend}) {}

  [[nodiscard]] std::string description() const { return decoder_.description(); }
  [[nodiscard]] bool accepts(const File& file) {
    return decoder_.make_filter()->accepts(std::as_bytes(std::span(file)));
  }
  /// Decodes without waiting; the number of refused images.
  std::size_t queue(const std::vector<EncodedImage>& images, std::int32_t height,
                    std::int32_t width) {
    const std::size_t bytes = images.size() * static_cast<std::size_t>(height * width * 3);
    if (pixels_.size() < bytes) pixels_ = DeviceArray<std::uint8_t>(device_, bytes);
    std::vector<DecodeTarget> targets;
    for (std::size_t i = 0; i < images.size(); ++i) {
      targets.push_back(
          {.image = static_cast<std::int64_t>(i),
           .pixels = pixels_.data() + i * static_cast<std::size_t>(height * width * 3)});
    }
    const PixelImages batch{.height = height, .width = width, .encoded = {.images = images.data()}};
    return decoder_.decode(batch, targets).size();
  }
  void wait() {
    const auto done = device_.make_event();
    device_.mark(*done, Device::Queue::transfers);
    device_.wait(*done);
  }
  [[nodiscard]] std::vector<std::uint8_t> decode(const std::vector<EncodedImage>& images,
                                                 std::int32_t height, std::int32_t width) {
    BOOST_TEST(queue(images, height, width) == 0U);
    wait();
    std::vector<std::uint8_t> pixels(images.size() * static_cast<std::size_t>(height * width * 3));
    device_.copy_to_host(pixels.data(), pixels_.data(), pixels.size());
    device_.synchronize();
    return pixels;
  }

 private:
  CudaDevice device_;
  BatchDecoder decoder_;
  DeviceArray<std::uint8_t> pixels_;
};

/// The GPU's JPEG engines, if it has any, and its multiprocessors.
template <typename Work>
void for_each_backend(Work&& work) {
  for (const std::optional<JpegBackend> backend :
       {std::optional<JpegBackend>(), std::optional(JpegBackend::gpu_hybrid)}) {
    OnDevice on_device(backend);
    BOOST_TEST_CONTEXT(on_device.description()) {
      work(on_device);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(nvjpeg_gives_nearly_the_pixels_of_libjpeg) {
  if (is_impossible()) return;
  constexpr int height = 375;
  constexpr int width = 500;
  for_each_backend([](OnDevice& on_device) {
    for (const auto& [horizontal, vertical] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2), std::pair(1, 2)}) {
      const File file =
          photograph(horizontal + 2 * vertical, {.height = height, .width = width, .channels = 3},
                     {.quality = 90, .horizontal = horizontal, .vertical = vertical});
      const bool accepted = on_device.accepts(file);
      std::printf("%s, %dx%d pixels per sample of colour: %s\n", on_device.description().c_str(),
                  horizontal, vertical, accepted ? "accepted" : "refused");
      // Most photographs are of this kind.
      if (horizontal == 2 && vertical == 2) BOOST_TEST(accepted);
      if (!accepted) continue;
      const Image expected = decoded_on_host(file);

      const auto found = on_device.decode({whole(file, height, width)}, height, width);

      double sum = 0;
      int largest = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        const int difference = std::abs(int{found[i]} - std::to_integer<int>(expected.pixels[i]));
        sum += difference;
        largest = std::max(largest, difference);
      }
      const double mean = sum / static_cast<double>(found.size());
      std::printf("  differences from libjpeg: mean %.3f, largest %d\n", mean, largest);
      BOOST_TEST(mean < 1.0);
      BOOST_TEST(largest <= 12);  // a few levels in each of Y, Cb and Cr
    }
  });
}

BOOST_AUTO_TEST_CASE(images_of_all_sizes_are_resized_as_on_the_cpu) {
  if (is_impossible()) return;
  constexpr std::int32_t size = 64;
  for_each_backend([](OnDevice& on_device) {
    std::vector<File> files;
    std::vector<EncodedImage> images;
    for (int i = 0; i < 24; ++i) {
      files.push_back(
          photograph(i, {.height = 64 + 17 * i, .width = 500 - 18 * i, .channels = 3}, {}));
    }
    for (const File& file : files) {
      EncodedImage image = whole(file, size, size);
      const ImageShape shape{.channels = 3, .height = image.height, .width = image.width};
      const ImageShape target{.channels = 3, .height = size, .width = size};
      const ResampleFilter filter =
          images.size() % 2 == 0 ? ResampleFilter::bilinear : ResampleFilter::bicubic;
      const Region region{.top = shape.height / 5,
                          .left = shape.width / 3,
                          .height = shape.height - shape.height / 5 - 1,
                          .width = shape.width - shape.width / 3};
      image.resize = images.size() % 3 == 0 ? centre_of_resized(shape, 73, target, filter)
                                            : resize_of(region, target, filter);
      images.push_back(image);
    }

    const auto found = on_device.decode(images, size, size);

    Resampler resampler;
    Image expected;
    for (std::size_t i = 0; i < images.size(); ++i) {
      const auto [height, width] = std::pair(images[i].height, images[i].width);
      const auto pixels = on_device.decode({whole(files[i], height, width)}, height, width);
      resampler.resize(std::as_bytes(std::span(pixels)),
                       {.channels = 3, .height = height, .width = width}, images[i].resize,
                       {.channels = 3, .height = size, .width = size}, expected);
      const auto own =
          std::as_bytes(std::span(found)).subspan(i * size * size * 3, size * size * 3);
      BOOST_TEST(std::ranges::equal(own, expected.pixels));
    }
  });
}

BOOST_AUTO_TEST_CASE(batches_decode_to_the_same_pixels_again) {
  if (is_impossible()) return;
  for_each_backend([](OnDevice& on_device) {
    std::vector<File> files;
    for (int i = 0; i < 32; ++i) {
      files.push_back(photograph(i, {.height = 300 + i, .width = 400, .channels = 3}, {}));
    }
    std::vector<EncodedImage> images;
    for (const File& file : files) images.push_back(whole(file, 224, 224));

    const auto first = on_device.decode(images, 224, 224);
    const auto second = on_device.decode(images, 224, 224);
    std::vector<std::uint8_t> singly;
    for (const EncodedImage& image : images) {
      const auto pixels = on_device.decode({image}, 224, 224);
      singly.insert(singly.end(), pixels.begin(), pixels.end());
    }

    BOOST_TEST((second == first));
    BOOST_TEST((singly == first));
  });
}

BOOST_AUTO_TEST_CASE(what_nvjpeg_refuses_is_printed) {
  if (is_impossible()) return;
  const JpegSize size{.height = 200, .width = 300, .channels = 3};
  const File plain = photograph(1, size, {});
  File cut_off = plain;
  cut_off.resize(plain.size() / 2);
  File damaged = plain;
  for (std::size_t i = plain.size() / 2; i < plain.size() / 2 + 40; ++i) damaged[i] = 0x5A;
  const std::vector<std::pair<const char*, File>> files{
      {"plain", plain},
      {"grey", photograph(1, {.height = 200, .width = 300, .channels = 1}, {})},
      {"CMYK", photograph(1, {.height = 200, .width = 300, .channels = 4}, {})},
      {"progressive", photograph(1, size, {.progressive = true})},
      {"cut off", cut_off},
      {"damaged", damaged},
      {"small", photograph(1, {.height = 20, .width = 17, .channels = 3}, {})}};
  for_each_backend([&](OnDevice& on_device) {
    for (const auto& [name, file] : files) {
      std::string result = on_device.accepts(file) ? "accepted" : "refused";
      const std::string kind = name;
      // Decoded if the loader would leave it to the GPU.
      if (result == "accepted" && (kind == "plain" || kind == "small" || kind == "damaged")) {
        const bool refused = on_device.queue({whole(file, 64, 64)}, 64, 64) > 0;
        on_device.wait();
        result += refused ? ", refused in a batch" : ", decoded";
      }
      std::printf("%s: %s: %s\n", on_device.description().c_str(), name, result.c_str());
    }
    // A damaged file does not harm later batches.
    BOOST_TEST(on_device.queue({whole(plain, 64, 64)}, 64, 64) == 0U);
    on_device.wait();
  });
}

BOOST_AUTO_TEST_CASE(rates_are_printed) {
  if (is_impossible()) return;
  for_each_backend([](OnDevice& on_device) {
    std::vector<File> files;
    for (int i = 0; i < 32; ++i) {
      files.push_back(photograph(i, {.height = 375, .width = 500, .channels = 3}, {.quality = 90}));
    }
    std::vector<EncodedImage> images;
    for (std::size_t i = 0; i < 256; ++i) {
      images.push_back(whole(files[i % files.size()], 224, 224));
    }
    for (int round = 0; round < 3; ++round) {
      constexpr int batches = 8;
      const auto begin = std::chrono::steady_clock::now();
      for (int batch = 0; batch < batches; ++batch) on_device.queue(images, 224, 224);
      const std::chrono::duration<double> queued = std::chrono::steady_clock::now() - begin;
      on_device.wait();
      const std::chrono::duration<double> done = std::chrono::steady_clock::now() - begin;
      std::printf("%s: %.0f images/s, the host was busy for %.0f %% of the time\n",
                  on_device.description().c_str(), batches * 256 / done.count(),
                  100 * queued.count() / done.count());
    }
  });
}
