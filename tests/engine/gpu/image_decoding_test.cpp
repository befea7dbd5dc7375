#include "../../../src/engine/gpu/batch_decoder.hpp"
#include "../../../src/engine/gpu/input_queue.hpp"
#include "data/shard_fixture.hpp"
#include "host_device.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;
using namespace lockstep::test;

namespace {

using File = std::vector<std::uint8_t>;
constexpr std::int64_t batch_size = 6;
const ImageShape network{.channels = 3, .height = 16, .width = 12};

/// Every other one has only black and white, which a bicubic filter overshoots.
File photograph(int seed, const JpegSize& size, const JpegForm& form) {
  return jpeg_of(size, form, [&](std::size_t y, std::size_t i) {
    if (seed % 2 == 0) return static_cast<JSAMPLE>((y / 4 + i / 12) % 2 * 255);
    return static_cast<JSAMPLE>(128 + (i * 7 + y * 3 + static_cast<std::size_t>(seed) * 11) % 101 -
                                (i * y) % 47);
  });
}

/// Files that a device decodes, of all subsamplings and of sizes above and below the network's.
std::vector<File> plain_files() {
  std::vector<File> files;
  int seed = 0;
  for (const auto& [horizontal, vertical] :
       {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    for (const auto& [height, width] : {std::pair(40, 53), std::pair(9, 60), std::pair(16, 12)}) {
      files.push_back(photograph(++seed, {.height = height, .width = width, .channels = 3},
                                 {.horizontal = horizontal, .vertical = vertical}));
    }
  }
  return files;
}

/// Files that the host decodes.
std::vector<File> other_files() {
  const JpegSize size{.height = 30, .width = 24, .channels = 3};
  std::vector<File> files{
      photograph(20, {.height = 30, .width = 24, .channels = 1}, {}),
      photograph(21, {.height = 30, .width = 24, .channels = 4}, {}),
      photograph(22, size, {.progressive = true}),
      photograph(23, size, {.horizontal = 4, .vertical = 1}),
  };
  files.push_back(photograph(24, size, {}));
  files.back().push_back(0);  // does not end with the end marker
  return files;
}

struct Shards {
  explicit Shards(const std::vector<File>& files) {
    write_encoded_shard(directory / "train-00000-of-00001.h5", files, {});
    dataset = open_dataset(directory.path(), "train", *make_self_communicator());
  }
  TemporaryDirectory directory;
  std::unique_ptr<Dataset> dataset;
};

LoaderOptions options_for(const Dataset& dataset, Augment augment, int threads) {
  return {.image = network,
          .format = {.layout = ImageLayout::nhwc, .content = ImageContent::pixels},
          .mean = dataset.info().mean,
          .std = dataset.info().std,
          .augment = augment,
          .crop_padding = 2,
          .mix = {.mixup = 0.4},
          .seed = 5,
          .batch_capacity = batch_size,
          .threads = threads};
}

/// Two epochs; the last batch of an epoch is short.
BatchPlan plan_for(std::int64_t count) {
  return [count](std::int64_t n) -> std::optional<BatchRequest> {
    const std::int64_t batches = (count + batch_size - 1) / batch_size;
    if (n >= 2 * batches) return std::nullopt;
    const std::int64_t first = n % batches * batch_size;
    return BatchRequest{
        .epoch = n / batches, .first = first, .count = std::min(batch_size, count - first)};
  };
}

std::size_t pixel_bytes(const Batch& batch) {
  return static_cast<std::size_t>(batch.size * network.height * network.width * 3);
}

/// What the engine gets, of all batches.
struct Received {
  std::vector<std::uint8_t> pixels;
  std::vector<PixelCut> cuts;
  std::vector<std::int32_t> labels;
  friend bool operator==(const Received&, const Received&) = default;
  void add(const Batch& batch, const std::uint8_t* data) {
    pixels.insert(pixels.end(), data, data + pixel_bytes(batch));
    cuts.insert(cuts.end(), batch.pixels.cuts, batch.pixels.cuts + batch.size);
    labels.insert(labels.end(), batch.targets.labels, batch.targets.labels + batch.size);
  }
};

Received load_on_host(const Dataset& dataset, const LoaderOptions& options) {
  Received all;
  const auto loader = make_loader(dataset, options, plan_for(dataset.info().samples));
  while (const auto loaded = loader->next()) all.add(loaded->batch, loaded->batch.pixels.data);
  return all;
}

/// Loads with files, and decodes on the device.
Received load_on_device(const Dataset& dataset, LoaderOptions options, Device& device,
                        InputQueue& input) {
  Received all;
  options.format.decoding = input.decoding();
  const auto loader = make_loader(dataset, options, plan_for(dataset.info().samples));
  const ImageExtent extent{.batch = batch_size,
                           .height = network.height,
                           .width = network.width,
                           .channels = 3,
                           .padded = 4};
  while (const auto loaded = loader->next()) {
    input.begin(loaded->batch);
    const DeviceBatch taken = input.take(loaded->batch, extent);
    std::vector<std::uint8_t> pixels(pixel_bytes(loaded->batch));
    device.copy_to_host(pixels.data(), taken.images.data, pixels.size());
    device.synchronize();
    all.add(loaded->batch, pixels.data());
    input.release();
  }
  return all;
}

struct Decoding {
  explicit Decoding(HostWork when, const BatchDecoderOptions& options = {})
      : device(make_host_device(when, HostMemoryGuard::on)),
        input(*device, 3, std::make_unique<BatchDecoder>(*device, options)) {}
  std::unique_ptr<Device> device;
  InputQueue input;
};

std::size_t decoded(const HostJpegLibrary& library) {
  std::size_t count = 0;
  for (const std::size_t each : library.batches) count += each;
  return count;
}

template <typename Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_device_gives_the_pixels_of_the_host) {
  std::vector<File> files = plain_files();
  const auto plain = files.size();
  for (File& file : other_files()) files.push_back(std::move(file));
  const Shards shards(files);
  for (const HostWork when : {HostWork::at_once, HostWork::late}) {
    for (const Augment augment : {Augment::none, Augment::crop_flip, Augment::resized_crop}) {
      for (const int threads : {0, 3}) {
        LoaderOptions options = options_for(*shards.dataset, augment, threads);
        if (augment == Augment::resized_crop) options.filter = ResizeFilter::random;
        if (augment == Augment::none && threads == 0) options.filter = ResizeFilter::bicubic;
        const Received expected = load_on_host(*shards.dataset, options);
        Decoding decoding(when, {.piece_bytes = threads == 0 ? std::size_t{7000} : 1U << 20});

        const Received found =
            load_on_device(*shards.dataset, options, *decoding.device, decoding.input);

        BOOST_TEST((found == expected));
        BOOST_TEST(decoded(jpeg_library(*decoding.device)) == 2 * plain);
        const auto counts = decoding.input.decoding()->counts();
        BOOST_TEST(counts.device == static_cast<std::int64_t>(2 * plain));
        BOOST_TEST(counts.host == static_cast<std::int64_t>(2 * (files.size() - plain)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(files_that_the_library_refuses_are_decoded_on_the_host) {
  const Shards shards(plain_files());
  const LoaderOptions options = options_for(*shards.dataset, Augment::resized_crop, 2);
  const Received expected = load_on_host(*shards.dataset, options);
  const auto is_odd = [](std::span<const std::uint8_t> file) { return file.size() % 2 == 1; };

  const auto files = plain_files();
  const auto even = static_cast<std::size_t>(
      std::ranges::count_if(files, [](const File& file) { return file.size() % 2 == 0; }));
  BOOST_TEST_REQUIRE(even > 0U);
  BOOST_TEST_REQUIRE(even < files.size());

  Decoding by_header(HostWork::late);
  jpeg_library(*by_header.device).refuses = is_odd;
  Decoding by_batch(HostWork::late, {.piece_bytes = 7000});
  jpeg_library(*by_batch.device).result = [&](std::span<const std::uint8_t> file) {
    return is_odd(file) ? JpegStatus::bad_jpeg : JpegStatus::success;
  };

  for (Decoding* decoding : {&by_header, &by_batch}) {
    const Received found =
        load_on_device(*shards.dataset, options, *decoding->device, decoding->input);

    BOOST_TEST((found == expected));
    BOOST_TEST(decoded(jpeg_library(*decoding->device)) == 2 * even);
  }
}

BOOST_AUTO_TEST_CASE(a_loader_waits_for_work_that_reads_its_files) {
  const Shards shards(plain_files());
  Decoding decoding(HostWork::at_once);  // transfers as late as possible
  LoaderOptions options = options_for(*shards.dataset, Augment::none, 2);
  options.format.decoding = decoding.input.decoding();
  auto loader = make_loader(*shards.dataset, options, plan_for(batch_size));
  const auto loaded = loader->next();
  decoding.input.begin(loaded->batch);
  const HostJpegLibrary& library = jpeg_library(*decoding.device);
  BOOST_TEST(library.decoded == 0U);

  loader.reset();

  BOOST_TEST(library.decoded == static_cast<std::size_t>(batch_size));
}

BOOST_AUTO_TEST_CASE(a_damaged_file_is_the_same_error_as_on_the_host) {
  for (const bool cut_off : {true, false}) {
    std::vector<File> files = plain_files();
    File& damaged = files[4];
    damaged.resize(damaged.size() / 2);
    if (!cut_off) damaged.insert(damaged.end(), {0xFF, 0xD9});
    const Shards shards(files);
    const LoaderOptions options = options_for(*shards.dataset, Augment::none, 2);
    Decoding decoding(HostWork::late);
    jpeg_library(*decoding.device).result = [&](std::span<const std::uint8_t> file) {
      return file.size() == damaged.size() ? JpegStatus::bad_jpeg : JpegStatus::success;
    };

    const std::string expected = error_of([&] { load_on_host(*shards.dataset, options); });
    const std::string found = error_of(
        [&] { load_on_device(*shards.dataset, options, *decoding.device, decoding.input); });

    BOOST_TEST(found == expected);
    BOOST_TEST(expected.empty() == !cut_off);  // libjpeg only warns about the other
  }
}

BOOST_AUTO_TEST_CASE(a_failing_library_is_an_error) {
  const Shards shards(plain_files());
  Decoding decoding(HostWork::late);
  jpeg_library(*decoding.device).result = [](std::span<const std::uint8_t>) {
    return JpegStatus::execution_failed;
  };

  const std::string error = error_of([&] {
    load_on_device(*shards.dataset, options_for(*shards.dataset, Augment::none, 0),
                   *decoding.device, decoding.input);
  });

  BOOST_TEST(error.find("nvjpegDecodeBatched returned 6: execution failed") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_jpeg_engines_are_used_if_there_are_any) {
  const auto device = make_host_device();
  BOOST_TEST(BatchDecoder(*device).description() == "the host's decoder, multiprocessors");
  jpeg_library(*device).has_engines = true;
  BOOST_TEST(BatchDecoder(*device).description() == "the host's decoder, 1 JPEG engine of 8 cores");
}

BOOST_AUTO_TEST_CASE(options_that_need_pixels_on_the_host_are_refused) {
  const Shards shards(plain_files());
  Decoding decoding(HostWork::late);
  LoaderOptions options = options_for(*shards.dataset, Augment::none, 0);
  options.format.decoding = decoding.input.decoding();
  const auto refusal = [&] {
    return error_of([&] { check_loader_options(shards.dataset->info(), options); });
  };
  BOOST_TEST(refusal().empty());

  options.auto_augment.policy = AutoAugment::randaugment;
  BOOST_TEST(refusal().starts_with("--decode gpu does not go with --auto-augment ("));
  options.auto_augment = {};
  options.image.channels = 1;
  options.mean = options.std = {0.5F};
  BOOST_TEST(refusal().starts_with("--decode gpu does not go with --channels 1 ("));
}
