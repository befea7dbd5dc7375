#include "lockstep/data/auto_augment.hpp"

#include "data/shard_fixture.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/augment.hpp"
#include "lockstep/data/loader.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <set>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t samples = 53;
constexpr std::int64_t batch_size = 12;
constexpr std::int64_t steps = samples / batch_size;
const ImageShape network{.channels = 3, .height = 6, .width = 5};
constexpr std::int64_t image_values = 90;

constexpr AutoAugmentOptions trivial{.policy = AutoAugment::trivialaugment};
constexpr AutoAugmentOptions rand3{.policy = AutoAugment::randaugment,
                                   .ops = 3,
                                   .magnitude = 12,
                                   .interpolation = Interpolation::bilinear};

Image counted_image(const ImageShape& shape) {
  Image image{.shape = shape, .pixels = {}};
  image.pixels.resize(static_cast<std::size_t>(shape.height * shape.width * shape.channels));
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<std::byte>(i * 37 + 11);
  }
  return image;
}

struct Fixture {
  TemporaryDirectory directory;
  std::unique_ptr<Dataset> dataset;

  Fixture() {
    write_shard(directory / "train-00000-of-00001.h5", {.samples = samples});
    const auto comm = make_self_communicator();
    dataset = open_dataset(directory.path(), "train", *comm);
  }

  [[nodiscard]] LoaderOptions options(const AutoAugmentOptions& auto_augment) const {
    return {.image = network,
            .format = {.layout = ImageLayout::nhwc},
            .mean = dataset->info().mean,
            .std = dataset->info().std,
            .augment = Augment::crop_flip,
            .crop_padding = 2,
            .auto_augment = auto_augment,
            .seed = 9,
            .batch_capacity = batch_size,
            .repeats = 3};
  }
};

/// Slice `rank` of `ranks` of each step of an epoch, from step `first` on.
BatchPlan plan_of(std::int64_t ranks, std::int64_t rank, std::int64_t first = 0) {
  return [=](std::int64_t n) -> std::optional<BatchRequest> {
    const std::int64_t step = first + n;
    if (step >= 2 * steps) return std::nullopt;
    const Slice part = slice_of(batch_size, ranks, rank);
    const std::int64_t begin = step % steps * batch_size;
    return BatchRequest{.epoch = step / steps,
                        .first = begin + part.begin,
                        .count = part.count,
                        .step = {.begin = begin, .count = batch_size}};
  };
}

std::vector<float> load_all(const Dataset& dataset, const LoaderOptions& options,
                            const BatchPlan& plan) {
  std::vector<float> all;
  const auto loader = make_loader(dataset, options, plan);
  while (const auto loaded = loader->next()) {
    const float* const images = loaded->batch.values;
    all.insert(all.end(), images, images + loaded->batch.size * image_values);
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(draws_depend_only_on_seed_epoch_sample_and_copy) {
  const auto draw = [](std::uint64_t seed, std::int64_t epoch, SampleCopy sample) {
    PhiloxStream random = auto_augment_stream(seed, epoch, sample);
    return random.next_u64();
  };
  const SampleCopy sample{.sample = 3, .copy = 1};

  BOOST_TEST(draw(1, 2, sample) == draw(1, 2, sample));
  BOOST_TEST(draw(1, 2, sample) != draw(2, 2, sample));
  BOOST_TEST(draw(1, 2, sample) != draw(1, 3, sample));
  BOOST_TEST(draw(1, 2, sample) != draw(1, 2, {.sample = 4, .copy = 1}));
  BOOST_TEST(draw(1, 2, sample) != draw(1, 2, {.sample = 3, .copy = 0}));
  BOOST_TEST(draw(1, 2, sample) != draw(1, 2, {.sample = 3, .copy = 1023}));
  // The stream of crops and flips is another.
  BOOST_TEST(draw(1, 2, sample) != augmentation_stream(1, 2, sample).next_u64());
}

BOOST_AUTO_TEST_CASE(copies_have_their_own_crops_and_boxes) {
  const SampleCopy first{.sample = 3, .copy = 0};
  const SampleCopy second{.sample = 3, .copy = 1};

  BOOST_TEST(augmentation_stream(1, 2, first).next_u64() !=
             augmentation_stream(1, 2, second).next_u64());
  BOOST_TEST(erasing_stream(1, 2, first).next_u64() != erasing_stream(1, 2, second).next_u64());
  const std::vector<float> probabilities(64, 0.5F);
  BOOST_TEST(draw_dropped_blocks(probabilities, 1, 2, first) !=
             draw_dropped_blocks(probabilities, 1, 2, second));
}

BOOST_AUTO_TEST_CASE(images_get_the_drawn_operations_in_turn) {
  AutoAugmenter augmenter;
  for (std::int64_t i = 0; i < 200; ++i) {
    const ImageShape shape{.channels = i % 2 == 0 ? 3 : 1, .height = 9, .width = 14};
    Image one = counted_image(shape);
    Image other = counted_image(shape);
    PhiloxStream random = auto_augment_stream(1, 0, {.sample = i});
    PhiloxStream same = auto_augment_stream(1, 0, {.sample = i});

    augmenter.augment(random, trivial, one);
    augmenter.apply(draw_trivial_augment(same), Interpolation::nearest, other);
    BOOST_TEST((one.pixels == other.pixels));
    augmenter.augment(random, rand3, one);
    for (std::int64_t op = 0; op < rand3.ops; ++op) {
      augmenter.apply(draw_rand_augment(same, rand3, shape), Interpolation::bilinear, other);
    }

    BOOST_TEST((one.pixels == other.pixels));
    BOOST_TEST((one.shape == shape));
  }
}

BOOST_AUTO_TEST_CASE(images_alternate_between_two_buffers) {
  AutoAugmenter augmenter;
  Image image = counted_image({.channels = 3, .height = 32, .width = 32});
  std::set<const std::byte*> buffers;

  for (std::int64_t i = 0; i < 300; ++i) {
    PhiloxStream random = auto_augment_stream(1, 0, {.sample = i});
    augmenter.augment(random, rand3, image);
    buffers.insert(image.pixels.data());
  }

  BOOST_TEST(buffers.size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_copied_window_equals_the_window_of_the_normalizer) {
  const ImageShape shape{.channels = 3, .height = 7, .width = 5};
  const std::vector<float> mean(3, 0);
  const std::vector<float> std(3, 1.0F / 255.0F);
  const Normalizer normalizer(mean, std);
  const Image stored = counted_image(shape);
  Image cut{.shape = {.channels = 3, .height = 6, .width = 4}, .pixels = {}};
  for (std::int64_t top = -7; top <= 8; ++top) {
    for (std::int64_t left = -6; left <= 7; ++left) {
      for (const bool flip : {false, true}) {
        const Window window{.top = top, .left = left, .flip = flip};
        std::vector<float> values(72);

        copy_window(stored.pixels, shape, window, cut);
        normalizer.write(stored.pixels, shape, window,
                         {.shape = cut.shape, .layout = ImageLayout::nhwc}, values.data());

        for (std::size_t i = 0; i < 72; ++i) {
          BOOST_REQUIRE_EQUAL(std::to_integer<int>(cut.pixels[i]), std::lround(values[i]));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_batch_holds_the_copies_of_its_samples_augmented_after_the_crop) {
  const Fixture fixture;
  for (const AutoAugmentOptions& auto_augment : {trivial, rand3}) {
    const LoaderOptions options = fixture.options(auto_augment);
    const std::vector<float> all = load_all(*fixture.dataset, options, plan_of(1, 0));
    const Normalizer normalizer(options.mean, options.std);
    const SampleOrder order(samples, options.seed);
    AutoAugmenter augmenter;

    BOOST_REQUIRE_EQUAL(all.size(), 2u * steps * batch_size * image_values);
    for (std::int64_t i = 0; i < 2 * steps * batch_size; ++i) {
      const std::int64_t epoch = i / (steps * batch_size);
      const std::int64_t position = i % (steps * batch_size);
      // In a step of 12 there are 3 copies of 4 samples: first copies first.
      const std::int64_t place = position % 4 * 3 + position % batch_size / 4;
      const std::int64_t index = order.at(epoch, (position / batch_size * batch_size + place) / 3);
      const SampleCopy sample{.sample = index, .copy = position % batch_size / 4};
      RawSample raw;
      fixture.dataset->read(index, raw);
      PhiloxStream crop = augmentation_stream(options.seed, epoch, sample);
      PhiloxStream ops = auto_augment_stream(options.seed, epoch, sample);
      Image image{.shape = network, .pixels = {}};
      copy_window(raw.bytes, network, draw_crop_flip(crop, network, network, 2), image);
      augmenter.augment(ops, auto_augment, image);
      std::vector<float> expected(image_values);
      normalizer.write(image.pixels, network, {}, {.shape = network, .layout = ImageLayout::nhwc},
                       expected.data());

      BOOST_REQUIRE(std::equal(expected.begin(), expected.end(), all.begin() + i * image_values));
    }
  }
}

BOOST_AUTO_TEST_CASE(batches_do_not_depend_on_threads_ranks_or_the_first_step) {
  const Fixture fixture;
  LoaderOptions options = fixture.options(rand3);
  options.random_erasing = 0.5;
  options.mix = {.mixup = 0.4, .cutmix = 1};
  options.threads = 0;
  const std::vector<float> expected = load_all(*fixture.dataset, options, plan_of(1, 0));

  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    BOOST_TEST((load_all(*fixture.dataset, options, plan_of(1, 0)) == expected));
  }
  const std::vector<float> rest = load_all(*fixture.dataset, options, plan_of(1, 0, 5));
  BOOST_TEST(std::ranges::equal(rest, std::span(expected).last(rest.size())));
  for (const std::int64_t ranks : {2, 3, 6}) {
    std::vector<float> joined(expected.size());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::vector<float> part = load_all(*fixture.dataset, options, plan_of(ranks, rank));
      const Slice slice = slice_of(batch_size, ranks, rank);
      for (std::int64_t step = 0; step < 2 * steps; ++step) {
        std::copy_n(part.begin() + step * slice.count * image_values, slice.count * image_values,
                    joined.begin() + (step * batch_size + slice.begin) * image_values);
      }
    }
    BOOST_TEST((joined == expected));
  }
}

BOOST_AUTO_TEST_CASE(images_of_two_channels_are_refused) {
  TemporaryDirectory directory;
  write_shard(directory / "train-00000-of-00001.h5",
              {.samples = 3, .channels = 2, .mean = {0.1F, 0.2F}, .std = {0.5F, 0.6F}});
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  const LoaderOptions options{.image = dataset->info().image,
                              .format = {},
                              .mean = dataset->info().mean,
                              .std = dataset->info().std,
                              .auto_augment = trivial,
                              .batch_capacity = 1};

  const Failure failure = failure_of([&] { check_loader_options(dataset->info(), options); });

  BOOST_TEST(static_cast<int>(failure.status) == 64);
  BOOST_TEST(failure.says("its images have 2 channels, the operations take 1 or 3"), failure.text);
}
