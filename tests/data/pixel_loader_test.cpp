#include "data/shard_fixture.hpp"
#include "gpu/kernels/kernels.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/data/loader.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t samples = 29;
constexpr std::int64_t batch_size = 8;
const ImageShape network{.channels = 3, .height = 5, .width = 4};

LoaderOptions options_for(const Dataset& dataset, Augment augment) {
  return {.image = network,
          .format = {.layout = ImageLayout::nhwc},
          .mean = dataset.info().mean,
          .std = dataset.info().std,
          .augment = augment,
          .crop_padding = 2,
          .seed = 5,
          .batch_capacity = batch_size};
}

/// A plan of two epochs; the last batch of an epoch is short.
BatchPlan plan_for(std::int64_t count) {
  return [count](std::int64_t n) -> std::optional<BatchRequest> {
    const std::int64_t batches = (count + batch_size - 1) / batch_size;
    if (n >= 2 * batches) return std::nullopt;
    const std::int64_t first = n % batches * batch_size;
    return BatchRequest{
        .epoch = n / batches, .first = first, .count = std::min(batch_size, count - first)};
  };
}

struct alignas(16) PaddedPixel {
  float values[4];
};

/// Input values of the network, (N, H, W, C), and labels of all batches.
struct AllBatches {
  std::vector<float> values;
  std::vector<std::int32_t> labels;
};

void append(const Batch& batch, AllBatches& all) {
  const std::int64_t size = network.channels * network.height * network.width;
  const std::size_t before = all.values.size();
  all.values.resize(before + static_cast<std::size_t>(batch.size * size));
  all.labels.insert(all.labels.end(), batch.targets.labels, batch.targets.labels + batch.size);
  if (batch.values != nullptr) {
    std::copy_n(batch.values, batch.size * size, all.values.data() + before);
    return;
  }
  // Computes the values as an engine does, padded to four channels.
  const gpu::ImageExtent extent{.batch = batch.size,
                                .height = network.height,
                                .width = network.width,
                                .channels = network.channels,
                                .padded = 4};
  std::vector<PaddedPixel> padded(
      static_cast<std::size_t>(batch.size * network.height * network.width));
  std::vector<std::byte> workspace(
      gpu::cut_images_workspace(extent, batch.pixels.height, batch.pixels.width));
  gpu::cut_images(nullptr, gpu::DataType::f32, extent,
                  {.data = batch.pixels.data,
                   .height = batch.pixels.height,
                   .width = batch.pixels.width,
                   .cuts = batch.pixels.cuts,
                   .values = batch.pixels.values,
                   .count = batch.size,
                   .workspace = workspace.data(),
                   .erased = batch.pixels.erased,
                   .mixes = batch.targets.mixes},
                  padded.data());
  float* out = all.values.data() + before;
  for (const PaddedPixel& pixel : padded) out = std::copy_n(pixel.values, 3, out);
}

AllBatches load_all(const Dataset& dataset, const LoaderOptions& options) {
  AllBatches all;
  const auto loader = make_loader(dataset, options, plan_for(dataset.info().samples));
  while (const auto loaded = loader->next()) append(loaded->batch, all);
  return all;
}

void check_pixels_become_the_values(const Dataset& dataset) {
  for (const Augment augment : {Augment::none, Augment::crop_flip, Augment::resized_crop}) {
    for (const auto& [threads, mix, policy] :
         {std::tuple{0, MixOptions{}, AutoAugment::none},
          std::tuple{3, MixOptions{}, AutoAugment::trivialaugment},
          std::tuple{3, MixOptions{.mixup = 0.4, .cutmix = 1}, AutoAugment::none},
          std::tuple{3, MixOptions{.mixup = 0.4, .cutmix = 1}, AutoAugment::randaugment}}) {
      LoaderOptions options = options_for(dataset, augment);
      options.mix = mix;
      options.random_erasing = mix.any() ? 0.5 : 0;
      options.auto_augment.policy = policy;
      options.threads = threads;
      const AllBatches values = load_all(dataset, options);
      options.format.content = ImageContent::pixels;
      const AllBatches pixels = load_all(dataset, options);

      BOOST_TEST(values.labels.size() == static_cast<std::size_t>(2 * dataset.info().samples));
      BOOST_TEST((pixels.labels == values.labels));
      BOOST_TEST((pixels.values == values.values));
    }
  }
}

/// Counts allocations; fails if memory is released that it did not allocate.
class CountingMemory final : public HostMemory {
 public:
  void* allocate(std::size_t bytes) override {
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    given_[memory] = bytes;
    total_ += bytes;
    return memory;
  }
  void release(void* memory) noexcept override {
    BOOST_TEST(given_.erase(memory) == 1u);
    std::free(memory);
  }
  [[nodiscard]] bool owns(const void* memory) const {
    return given_.contains(const_cast<void*>(memory));
  }
  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] bool all_released() const { return given_.empty(); }

 private:
  std::map<void*, std::size_t> given_;
  std::size_t total_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_CASE(stored_pixels_give_the_same_values_as_the_cpu_path) {
  const TemporaryDirectory directory;
  write_shard(directory / "train-00000-of-00001.h5", {.samples = samples});
  const auto comm = make_self_communicator();

  check_pixels_become_the_values(*open_dataset(directory.path(), "train", *comm));
}

BOOST_AUTO_TEST_CASE(decoded_pixels_give_the_same_values_as_the_cpu_path) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::uint8_t>> files;
  for (int i = 0; i < 12; ++i) {
    files.push_back(flat_jpeg({.height = 5 + 9 * i, .width = 90 - 7 * i, .channels = i % 2 ? 3 : 1},
                              static_cast<std::uint8_t>(20 * i)));
  }
  write_encoded_shard(directory / "train-00000-of-00001.h5", files, {});
  const auto comm = make_self_communicator();

  check_pixels_become_the_values(*open_dataset(directory.path(), "train", *comm));
}

BOOST_AUTO_TEST_CASE(a_random_filter_is_one_of_both_for_each_image_and_keeps_its_crop) {
  const TemporaryDirectory directory;
  write_shard(directory / "train-00000-of-00001.h5", {.samples = samples});
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  LoaderOptions options = options_for(*dataset, Augment::resized_crop);
  const auto load = [&](ResizeFilter filter) {
    options.filter = filter;
    return load_all(*dataset, options).values;
  };

  const std::vector<float> random = load(ResizeFilter::random);

  const std::vector<float> bilinear = load(ResizeFilter::bilinear);
  const std::vector<float> bicubic = load(ResizeFilter::bicubic);
  const auto size = static_cast<std::ptrdiff_t>(network.channels * network.height * network.width);
  int of_bilinear = 0;
  int of_bicubic = 0;
  for (std::ptrdiff_t at = 0; at < std::ssize(random); at += size) {
    const auto is = [&](const std::vector<float>& other) {
      return std::equal(random.begin() + at, random.begin() + at + size, other.begin() + at);
    };
    BOOST_TEST_REQUIRE((is(bilinear) || is(bicubic)));
    if (is(bilinear) != is(bicubic)) ++(is(bilinear) ? of_bilinear : of_bicubic);
  }
  BOOST_TEST(of_bilinear > samples / 2);  // of 58 images
  BOOST_TEST(of_bicubic > samples / 2);
  options.format.content = ImageContent::pixels;
  BOOST_TEST((load(ResizeFilter::random) == random));
  BOOST_TEST((load(ResizeFilter::bicubic) == bicubic));
}

BOOST_AUTO_TEST_CASE(a_batch_of_pixels_is_in_the_engines_memory_and_is_small) {
  const TemporaryDirectory directory;
  write_shard(directory / "train-00000-of-00001.h5", {.samples = samples});
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  CountingMemory memory;
  LoaderOptions options = options_for(*dataset, Augment::crop_flip);
  options.format.content = ImageContent::pixels;
  options.format.memory = &memory;
  options.batches_ahead = 3;

  auto loader = make_loader(*dataset, options, plan_for(samples));
  const auto loaded = loader->next();

  BOOST_REQUIRE(loaded.has_value());
  BOOST_TEST(loaded->batch.values == nullptr);
  BOOST_TEST(memory.owns(loaded->batch.targets.labels));
  BOOST_TEST(memory.owns(loaded->batch.pixels.data));
  BOOST_TEST(memory.owns(loaded->batch.pixels.cuts));
  BOOST_TEST(memory.owns(loaded->batch.pixels.values));
  const ImageShape& stored = dataset->info().image;
  const std::size_t bytes =
      static_cast<std::size_t>(stored.channels * stored.height * stored.width);
  BOOST_TEST(memory.total() ==
             4 * batch_size * (bytes + sizeof(PixelCut) + sizeof(std::int32_t)) + 3 * 256 * 4);
  loader.reset();
  BOOST_TEST(memory.all_released());
}
