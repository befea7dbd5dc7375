#include "lockstep/data/loader.hpp"

#include "data/shard_fixture.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/augment.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t samples = 53;
const std::string shard_name = "train-00000-of-00001.h5";

struct Fixture {
  TemporaryDirectory directory;
  std::unique_ptr<Dataset> dataset;

  explicit Fixture(const TestShard& shard = {.samples = samples}) {
    write_shard(directory / shard_name, shard);
    const auto comm = make_self_communicator();
    dataset = open_dataset(directory.path(), "train", *comm);
  }
};

LoaderOptions options_for(const Dataset& dataset) {
  return {.image = {.channels = 3, .height = 6, .width = 5},
          .format = {.layout = ImageLayout::nchw},
          .mean = dataset.info().mean,
          .std = dataset.info().std,
          .augment = Augment::crop_flip,
          .crop_padding = 2,
          .seed = 9,
          .batch_capacity = 8};
}

/// A plan of `epochs` epochs in batches of 8; the last batch of an epoch is short.
/// Each read waits until release().
class HeldDataset final : public Dataset {
 public:
  explicit HeldDataset(const Dataset& inner) : inner_(inner) {}
  [[nodiscard]] const DatasetInfo& info() const noexcept override { return inner_.info(); }
  void read(std::int64_t index, RawSample& sample) const override {
    released_.wait(false);
    inner_.read(index, sample);
  }
  void release() const {
    released_ = true;
    released_.notify_all();
  }

 private:
  const Dataset& inner_;
  mutable std::atomic<bool> released_ = false;
};

BatchPlan plan_of(std::int64_t epochs) {
  return [epochs](std::int64_t n) -> std::optional<BatchRequest> {
    constexpr std::int64_t batches = (samples + 7) / 8;
    if (n >= epochs * batches) return std::nullopt;
    const std::int64_t first = n % batches * 8;
    return BatchRequest{
        .epoch = n / batches, .first = first, .count = std::min<std::int64_t>(8, samples - first)};
  };
}

struct AllBatches {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  std::vector<ImageMix> mixes;  ///< partners are positions of the epoch
  std::vector<std::uint64_t> dropped;
  std::vector<BatchRequest> requests;
  friend bool operator==(const AllBatches&, const AllBatches&) = default;
};

AllBatches load_all(Loader& loader, std::int64_t image_floats) {
  AllBatches all;
  while (const auto loaded = loader.next()) {
    const Batch& batch = loaded->batch;
    BOOST_REQUIRE_EQUAL(batch.size, loaded->request.count);
    BOOST_REQUIRE_EQUAL(reinterpret_cast<std::uintptr_t>(batch.values) % 64, 0u);
    all.images.insert(all.images.end(), batch.values, batch.values + batch.size * image_floats);
    all.labels.insert(all.labels.end(), batch.targets.labels, batch.targets.labels + batch.size);
    for (std::int64_t i = 0; batch.targets.mixes != nullptr && i < batch.size; ++i) {
      all.mixes.push_back(batch.targets.mixes[i]);
      all.mixes.back().partner += static_cast<std::int32_t>(loaded->request.first);
    }
    if (batch.dropped.masks != nullptr) {
      all.dropped.insert(all.dropped.end(), batch.dropped.masks, batch.dropped.masks + batch.size);
    }
    all.requests.push_back(loaded->request);
  }
  BOOST_REQUIRE(!loader.next().has_value());
  return all;
}

AllBatches load_all(const Dataset& dataset, const LoaderOptions& options, const BatchPlan& plan) {
  const ImageShape& image = options.image;
  return load_all(*make_loader(dataset, options, plan),
                  image.channels * image.height * image.width);
}

}  // namespace

BOOST_AUTO_TEST_CASE(batches_do_not_depend_on_threads_or_depth) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.threads = 0;
  const AllBatches expected = load_all(*fixture.dataset, options, plan_of(3));

  BOOST_TEST(expected.labels.size() == static_cast<std::size_t>(3 * samples));
  for (const int threads : {1, 2, 5}) {
    for (const int ahead : {0, 1, 3, 30}) {
      options.threads = threads;
      options.batches_ahead = ahead;
      BOOST_TEST((load_all(*fixture.dataset, options, plan_of(3)) == expected));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_batch_contains_the_augmented_samples_of_its_positions) {
  const Fixture fixture;
  const LoaderOptions options = options_for(*fixture.dataset);
  const AllBatches all = load_all(*fixture.dataset, options, plan_of(2));
  const SampleOrder order(samples, options.seed);
  const Normalizer normalizer(options.mean, options.std);
  RawSample raw;
  std::vector<float> image(90);

  for (std::int64_t i = 0; i < 2 * samples; ++i) {
    const std::int64_t epoch = i / samples;
    const std::int64_t index = order.at(epoch, i % samples);
    fixture.dataset->read(index, raw);
    PhiloxStream random = augmentation_stream(options.seed, epoch, {.sample = index});
    const Window window = draw_crop_flip(random, options.image, options.image, 2);
    normalizer.write(raw.bytes, options.image, window,
                     {.shape = options.image, .layout = ImageLayout::nchw}, image.data());
    BOOST_REQUIRE_EQUAL(all.labels[static_cast<std::size_t>(i)], label_of(index));
    BOOST_REQUIRE(std::equal(image.begin(), image.end(), all.images.begin() + i * 90));
  }
}

BOOST_AUTO_TEST_CASE(boxes_of_samples_are_erased) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  const AllBatches whole = load_all(*fixture.dataset, options, plan_of(2));
  options.random_erasing = 0.5;
  const AllBatches erased = load_all(*fixture.dataset, options, plan_of(2));
  const SampleOrder order(samples, options.seed);

  int boxes = 0;
  for (std::int64_t i = 0; i < 2 * samples; ++i) {
    const std::int64_t epoch = i / samples;
    PhiloxStream random =
        erasing_stream(options.seed, epoch, {.sample = order.at(epoch, i % samples)});
    const PixelBox box = draw_erased_box(random, 0.5, options.image);
    boxes += box.is_empty() ? 0 : 1;
    for (std::int64_t k = 0; k < 90; ++k) {
      const auto at = static_cast<std::size_t>(i * 90 + k);
      const float expected = box.contains(k % 30 / 5, k % 5) ? 0.0F : whole.images[at];
      BOOST_REQUIRE_EQUAL(erased.images[at], expected);
    }
  }
  BOOST_TEST(boxes > samples / 2);
  BOOST_TEST(boxes < 2 * samples);
}

BOOST_AUTO_TEST_CASE(samples_drop_blocks_with_their_probabilities) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  BOOST_TEST(load_all(*fixture.dataset, options, plan_of(1)).dropped.empty());
  options.drop_probabilities = {0, 0.25, 0, 0.75};
  options.threads = 0;
  constexpr std::int64_t epochs = 20;
  const AllBatches all = load_all(*fixture.dataset, options, plan_of(epochs));

  for (const int threads : {1, 3}) {
    options.threads = threads;
    BOOST_TEST((load_all(*fixture.dataset, options, plan_of(epochs)) == all));
  }
  const SampleOrder order(samples, options.seed);
  std::array<double, 64> share{};
  for (std::int64_t i = 0; i < epochs * samples; ++i) {
    const std::int64_t epoch = i / samples;
    const std::uint64_t dropped = all.dropped[static_cast<std::size_t>(i)];
    BOOST_REQUIRE_EQUAL(dropped,
                        draw_dropped_blocks(options.drop_probabilities, options.seed, epoch,
                                            {.sample = order.at(epoch, i % samples)}));
    for (std::size_t block = 0; block < share.size(); ++block) {
      share[block] += static_cast<double>(dropped >> block & 1) / (epochs * samples);
    }
  }
  // Four standard deviations of a share of all draws.
  const double allowed = 4 * 0.5 / std::sqrt(static_cast<double>(epochs * samples));
  BOOST_TEST(std::abs(share[1] - 0.25) < allowed);
  BOOST_TEST(std::abs(share[3] - 0.75) < allowed);
  BOOST_TEST(share[0] + share[2] + share[4] + share[63] == 0);
  std::vector<std::uint64_t> next(all.dropped.begin() + samples, all.dropped.end());
  next.resize(static_cast<std::size_t>(samples));
  BOOST_TEST(!std::ranges::equal(next, std::span(all.dropped).first(next.size())));
}

BOOST_AUTO_TEST_CASE(mixed_batches_do_not_depend_on_threads_ranks_or_the_first_step) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.random_erasing = 0.5;
  options.mix = {.mixup = 0.4, .cutmix = 1};
  options.threads = 0;
  const AllBatches expected = load_all(*fixture.dataset, options, plan_of(3));

  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    BOOST_TEST((load_all(*fixture.dataset, options, plan_of(3)) == expected));
  }
  // From the middle of the second epoch.
  const AllBatches rest =
      load_all(*fixture.dataset, options, [](std::int64_t n) { return plan_of(3)(n + 10); });
  BOOST_TEST(std::ranges::equal(rest.images, std::span(expected.images).last(rest.images.size())));
  BOOST_TEST((std::ranges::equal(rest.mixes, std::span(expected.mixes).last(rest.mixes.size()))));
  // Each rank's slice of an epoch, in whole pairs.
  options.batch_capacity = samples;
  for (const std::int64_t ranks : {2, 3, 4}) {
    AllBatches joined;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Slice pairs = slice_of((samples + 1) / 2, ranks, rank);
      const std::int64_t end = std::min(samples, 2 * pairs.end());
      const AllBatches part =
          load_all(*fixture.dataset, options, [&](std::int64_t n) -> std::optional<BatchRequest> {
            if (n > 0) return std::nullopt;
            return BatchRequest{
                .epoch = 0, .first = 2 * pairs.begin, .count = end - 2 * pairs.begin};
          });
      joined.images.insert(joined.images.end(), part.images.begin(), part.images.end());
      joined.mixes.insert(joined.mixes.end(), part.mixes.begin(), part.mixes.end());
    }
    BOOST_TEST(
        std::ranges::equal(joined.images, std::span(expected.images).first(joined.images.size())));
    BOOST_TEST(
        (std::ranges::equal(joined.mixes, std::span(expected.mixes).first(joined.mixes.size()))));
  }
}

BOOST_AUTO_TEST_CASE(slices_that_separate_pairs_are_mixed_as_the_whole_batch) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.random_erasing = 0.5;
  options.mix = {.mixup = 0.4, .cutmix = 1};
  options.batch_capacity = samples;
  struct Mixed {
    std::vector<float> images;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> partners;  ///< their labels
    std::vector<ImageMix> mixes;
    bool operator==(const Mixed&) const = default;
  };
  const auto append = [&](const Slice& slice, const Slice& step, Mixed& all) {
    const auto loader =
        make_loader(*fixture.dataset, options, [&](std::int64_t n) -> std::optional<BatchRequest> {
          if (n > 0) return std::nullopt;
          return BatchRequest{
              .epoch = 1, .first = step.begin + slice.begin, .count = slice.count, .step = step};
        });
    const auto loaded = loader->next();
    const Batch& batch = loaded->batch;
    all.images.insert(all.images.end(), batch.values, batch.values + batch.size * 90);
    all.labels.insert(all.labels.end(), batch.targets.labels, batch.targets.labels + batch.size);
    for (std::int64_t i = 0; i < batch.size; ++i) {
      all.mixes.push_back(batch.targets.mixes[i]);
      all.mixes.back().partner = 0;
      all.partners.push_back(batch.targets.labels[batch.targets.mixes[i].partner]);
    }
  };
  for (const std::int64_t repeats : {1, 2}) {
    options.repeats = repeats;
    for (const Slice step : {Slice{.begin = 0, .count = 16}, Slice{.begin = 0, .count = 9},
                             Slice{.begin = 9, .count = 9}, Slice{.begin = 3, .count = 14}}) {
      options.threads = 0;
      Mixed whole;
      append({.begin = 0, .count = step.count}, step, whole);
      const auto unmixed = std::ranges::count(whole.mixes, 1.0F, &ImageMix::weight);
      BOOST_TEST(unmixed < step.count / 2);
      for (const int threads : {0, 1, 3}) {
        options.threads = threads;
        for (const std::int64_t ranks : {2, 3, 4, 5}) {
          Mixed joined;
          for (std::int64_t rank = 0; rank < ranks; ++rank) {
            append(slice_of(step.count, ranks, rank), step, joined);
          }
          BOOST_TEST((joined == whole),
                     step.count << " from " << step.begin << " on " << ranks << " ranks");
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(copies_need_a_batch_within_its_step) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.repeats = 3;
  for (const Slice step : {Slice{.begin = 0, .count = 0}, Slice{.begin = 1, .count = 8},
                           Slice{.begin = 0, .count = 7}}) {
    const auto loader =
        make_loader(*fixture.dataset, options, [step](std::int64_t) -> std::optional<BatchRequest> {
          return BatchRequest{.epoch = 0, .first = 0, .count = 8, .step = step};
        });
    BOOST_CHECK_EXCEPTION((void)loader->next(), Error, [](const Error& error) {
      return std::string(error.what()).find("not within its step's") != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(pairs_of_neighbours_in_the_order_are_mixed) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.random_erasing = 0.5;  // before mixing
  const AllBatches alone = load_all(*fixture.dataset, options, plan_of(2));
  options.mix = {.mixup = 0.4, .cutmix = 1};
  const AllBatches mixed = load_all(*fixture.dataset, options, plan_of(2));

  BOOST_TEST(alone.mixes.empty());
  BOOST_TEST(mixed.labels == alone.labels, boost::test_tools::per_element());
  int boxes = 0;
  for (std::int64_t i = 0; i < 2 * samples; ++i) {
    const std::int64_t position = i % samples;
    const ImageMix& mix = mixed.mixes[static_cast<std::size_t>(i)];
    const bool has_partner = (position ^ 1) < samples;
    BOOST_REQUIRE_EQUAL(mix.partner, has_partner ? position ^ 1 : position);
    PhiloxStream random = mixing_stream(options.seed, i / samples, position / 2);
    ImageMix drawn = draw_mix(random, options.mix, options.image);
    drawn.partner = mix.partner;
    if (has_partner) BOOST_REQUIRE((mix == drawn));
    if (!has_partner) BOOST_REQUIRE_EQUAL(mix.weight, 1);
    boxes += mix.box.is_empty() ? 0 : 1;
    const std::int64_t other = i - position + mix.partner;
    for (std::int64_t k = 0; k < 90; ++k) {
      const float own = alone.images[static_cast<std::size_t>(i * 90 + k)];
      const float partners = alone.images[static_cast<std::size_t>(other * 90 + k)];
      const bool pasted = mix.box.contains(k % 30 / 5, k % 5);
      const float weight = mix.box.is_empty() ? mix.weight : pasted ? 0.0F : 1.0F;
      // Within the roundings of fp32.
      BOOST_REQUIRE_SMALL(mixed.images[static_cast<std::size_t>(i * 90 + k)] -
                              (weight * own + (1 - weight) * partners),
                          1e-6F);
    }
  }
  BOOST_TEST(boxes > samples / 2);
  BOOST_TEST(boxes < 2 * samples);
}

BOOST_AUTO_TEST_CASE(nhwc_and_nchw_batches_have_the_same_values) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  const AllBatches planes = load_all(*fixture.dataset, options, plan_of(1));
  options.format.layout = ImageLayout::nhwc;
  const AllBatches pixels = load_all(*fixture.dataset, options, plan_of(1));

  for (std::size_t n = 0; n < samples; ++n) {
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < 30; ++i) {
        BOOST_REQUIRE_EQUAL(planes.images[n * 90 + c * 30 + i], pixels.images[n * 90 + i * 3 + c]);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(any_number_of_ranks_loads_each_sample_once_per_epoch) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.augment = Augment::none;
  const AllBatches serial = load_all(*fixture.dataset, options, plan_of(1));
  for (const std::int64_t ranks : {2, 3, 4}) {
    AllBatches joined;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Slice slice = slice_of(samples, ranks, rank);
      options.batch_capacity = slice.count;
      const AllBatches part =
          load_all(*fixture.dataset, options, [&](std::int64_t n) -> std::optional<BatchRequest> {
            if (n > 0) return std::nullopt;
            return BatchRequest{.epoch = 0, .first = slice.begin, .count = slice.count};
          });
      joined.images.insert(joined.images.end(), part.images.begin(), part.images.end());
      joined.labels.insert(joined.labels.end(), part.labels.begin(), part.labels.end());
    }
    BOOST_TEST((joined.images == serial.images));
    BOOST_TEST((joined.labels == serial.labels));
  }
}

BOOST_AUTO_TEST_CASE(evaluation_keeps_the_order_of_the_files) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.augment = Augment::none;
  options.shuffle = false;

  const AllBatches all = load_all(*fixture.dataset, options, plan_of(1));

  for (std::int64_t n = 0; n < samples; ++n) {
    BOOST_TEST(all.labels[static_cast<std::size_t>(n)] == label_of(n));
    const float expected = (static_cast<float>(pixel_of(n, 0)) / 255.0F - 0.1F) / 0.5F;
    BOOST_TEST(all.images[static_cast<std::size_t>(n * 90)] == expected);
  }
}

BOOST_AUTO_TEST_CASE(the_plan_is_called_once_for_each_batch) {
  const Fixture fixture;
  for (const int threads : {0, 1, 3}) {
    LoaderOptions options = options_for(*fixture.dataset);
    options.threads = threads;
    std::vector<std::atomic<int>> asked(32);
    const BatchPlan plan = plan_of(2);

    (void)load_all(*fixture.dataset, options, [&](std::int64_t n) {
      ++asked[static_cast<std::size_t>(n)];
      return plan(n);
    });

    for (std::size_t n = 0; n < asked.size(); ++n) {
      BOOST_TEST(asked[n] == (n <= 14 ? 1 : 0), "batch " << n << " with " << threads);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_ring_limits_how_far_ahead_batches_are_loaded) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.threads = 2;
  options.batches_ahead = 2;
  std::atomic<std::int64_t> furthest = -1;
  const BatchPlan plan = plan_of(10);
  const auto loader = make_loader(*fixture.dataset, options, [&](std::int64_t n) {
    for (std::int64_t seen = furthest; seen < n && !furthest.compare_exchange_weak(seen, n);) {
    }
    return plan(n);
  });

  for (std::int64_t n = 0; n < 20; ++n) {
    (void)loader->next();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    BOOST_TEST(furthest <= n + 2);
  }
}

BOOST_AUTO_TEST_CASE(a_returned_batch_is_not_touched_until_the_next_call) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.threads = 3;
  options.batches_ahead = 1;
  const auto loader = make_loader(*fixture.dataset, options, plan_of(3));

  while (const auto loaded = loader->next()) {
    const std::vector<float> before(loaded->batch.values, loaded->batch.values + 90);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    BOOST_TEST(std::equal(before.begin(), before.end(), loaded->batch.values));
  }
}

BOOST_AUTO_TEST_CASE(the_caller_may_do_something_else_while_a_batch_is_not_ready) {
  const Fixture fixture;
  const HeldDataset held(*fixture.dataset);
  LoaderOptions options = options_for(held);
  options.threads = 1;
  const auto loader = make_loader(held, options, plan_of(3));
  int calls = 0;
  const auto batch = loader->next([&] {
    if (++calls == 3) held.release();
  });
  BOOST_TEST(batch.has_value());
  BOOST_TEST(calls >= 3);

  options.threads = 0;
  const auto unthreaded = make_loader(*fixture.dataset, options, plan_of(3));
  calls = 0;
  BOOST_TEST(unthreaded->next([&] { ++calls; })->batch.size == calls);
}

BOOST_AUTO_TEST_CASE(a_loader_can_be_destroyed_at_any_moment) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  for (const int threads : {0, 1, 4}) {
    for (int taken = 0; taken < 25; ++taken) {
      options.threads = threads;
      const auto loader = make_loader(*fixture.dataset, options, plan_of(3));
      for (int i = 0; i < taken; ++i) (void)loader->next();
    }
  }
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_CASE(a_loader_that_is_blocked_in_a_read_is_left_behind_with_its_data) {
  static const Fixture fixture;  // the read ends after this test
  for (const bool blocked : {false, true}) {
    auto held = std::make_shared<const HeldDataset>(*fixture.dataset);
    const std::weak_ptr<const HeldDataset> watched = held;
    LoaderOptions options = options_for(*held);
    options.threads = 1;
    options.shuffle = false;
    auto loader = make_loader(*held, options, plan_of(3));
    while (loader->slowest_read().empty()) std::this_thread::yield();
    BOOST_TEST(loader->slowest_read() == held->describe(0));
    BOOST_TEST(loader->samples_read() == 0);
    if (!blocked) {
      held->release();
      (void)loader->next();
      BOOST_TEST(loader->samples_read() >= 8);
    }

    held.reset();
    loader.reset();

    BOOST_TEST(watched.expired() == !blocked);
    if (blocked) watched.lock()->release();
  }
}

BOOST_AUTO_TEST_CASE(a_bad_sample_fails_its_batch_and_all_later_calls) {
  const Fixture fixture;
  const std::string path = fixture.directory / shard_name;
  const std::string bytes = read_file(path);
  // The pixels are stored somewhere before the labels; find them by their first values.
  std::string first;
  for (std::int64_t i = 0; i < 90; ++i) first.push_back(static_cast<char>(pixel_of(20, i)));
  const std::size_t offset = bytes.find(first);
  BOOST_REQUIRE(offset != std::string::npos);
  std::string damaged = bytes;
  damaged[offset + 3] = static_cast<char>(damaged[offset + 3] ^ 1);
  write_file(path, damaged);
  LoaderOptions options = options_for(*fixture.dataset);
  options.shuffle = false;

  for (const int threads : {0, 1, 4}) {
    options.threads = threads;
    const auto loader = make_loader(*fixture.dataset, options, plan_of(1));
    BOOST_TEST(loader->next().has_value());
    BOOST_TEST(loader->next().has_value());
    for (int again = 0; again < 3; ++again) {
      const Failure failure = failure_of([&] { (void)loader->next(); });
      BOOST_TEST(static_cast<int>(failure.status) == 65);
      BOOST_TEST(failure.says(path + ": sample 20 has checksum"), failure.text);
    }
  }
}

BOOST_AUTO_TEST_CASE(larger_images_are_cropped_and_smaller_images_are_refused) {
  const Fixture fixture;
  LoaderOptions options = options_for(*fixture.dataset);
  options.augment = Augment::none;
  options.image = {.channels = 3, .height = 4, .width = 3};
  options.shuffle = false;
  const AllBatches all = load_all(*fixture.dataset, options, plan_of(1));

  // Row 1, column 1 of 6x5 is the first pixel of the centre 4x3.
  BOOST_TEST(all.images[0] ==
             (static_cast<float>(pixel_of(0, (5 + 1) * 3)) / 255.0F - 0.1F) / 0.5F);
  options.image = {.channels = 3, .height = 7, .width = 5};
  const Failure failure =
      failure_of([&] { (void)make_loader(*fixture.dataset, options, plan_of(1)); });
  BOOST_TEST(static_cast<int>(failure.status) == 64);
  BOOST_TEST(failure.says("images of 6x5, the network takes 7x5"), failure.text);
  options.image = {.channels = 1, .height = 6, .width = 5};
  BOOST_TEST(static_cast<int>(failure_of([&] {
                                (void)make_loader(*fixture.dataset, options, plan_of(1));
                              }).status) == 64);
}

BOOST_AUTO_TEST_CASE(a_device_gets_a_thread_for_each_core_but_one) {
  const auto threads = [](std::int64_t asked, ImageContent content, std::size_t cores,
                          int share = 64) {
    LoaderOptions options;
    options.format.content = content;
    options.cores.resize(cores);
    return loader_threads(asked, options, share);
  };

  BOOST_TEST(threads(-1, ImageContent::pixels, 8) == 7);
  BOOST_TEST(threads(-1, ImageContent::pixels, 1) == 1);
  BOOST_TEST(threads(-1, ImageContent::pixels, 0) == 1);
  BOOST_TEST(threads(-1, ImageContent::pixels, 64) == 16);
  BOOST_TEST(threads(-1, ImageContent::pixels, 64, 8) == 7);  // eight ranks share the cores
  BOOST_TEST(threads(-1, ImageContent::pixels, 4, 8) == 3);   // four of them are near the GPU
  BOOST_TEST(threads(-1, ImageContent::values, 8) == 1);
  BOOST_TEST(threads(0, ImageContent::pixels, 8) == 0);
  BOOST_TEST(threads(20, ImageContent::values, 8) == 20);
}

BOOST_AUTO_TEST_CASE(encoded_images_of_any_size_are_resized_to_the_networks) {
  const TemporaryDirectory directory;
  std::vector<std::vector<std::uint8_t>> files;
  for (int i = 0; i < 12; ++i) {
    files.push_back(flat_jpeg({.height = 5 + 9 * i, .width = 90 - 7 * i, .channels = i % 2 ? 3 : 1},
                              static_cast<std::uint8_t>(20 * i)));
  }
  write_encoded_shard(directory / shard_name, files, {});
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  LoaderOptions options = options_for(*dataset);
  options.image = {.channels = 3, .height = 16, .width = 16};
  options.crop_padding = 0;
  options.batch_capacity = 12;
  const BatchPlan plan = [](std::int64_t n) -> std::optional<BatchRequest> {
    if (n > 0) return std::nullopt;
    return BatchRequest{.epoch = 0, .first = 0, .count = 12};
  };

  for (const Augment augment : {Augment::none, Augment::crop_flip, Augment::resized_crop}) {
    options.augment = augment;
    options.shuffle = false;
    const AllBatches all = load_all(*dataset, options, plan);
    for (std::size_t n = 0; n < 12; ++n) {
      for (std::size_t i = 0; i < 256; ++i) {
        const float pixel = all.images[n * 768 + i] * 0.5F + 0.1F;
        BOOST_REQUIRE_SMALL(pixel * 255 - static_cast<float>(20 * n), 2.5F);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_error_for_a_damaged_jpeg_names_file_and_sample) {
  const TemporaryDirectory directory;
  auto good = flat_jpeg({.height = 20, .width = 20, .channels = 3}, 9);
  write_encoded_shard(directory / shard_name,
                      {good, std::vector<std::uint8_t>(good.begin(), good.begin() + 100)}, {});
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory.path(), "train", *comm);
  LoaderOptions options = options_for(*dataset);
  options.shuffle = false;
  const auto loader =
      make_loader(*dataset, options, [](std::int64_t) -> std::optional<BatchRequest> {
        return BatchRequest{.epoch = 0, .first = 0, .count = 2};
      });

  const Failure failure = failure_of([&] { (void)loader->next(); });

  BOOST_TEST(static_cast<int>(failure.status) == 65);
  BOOST_TEST(failure.says("train-00000-of-00001.h5: sample 1: not a whole JPEG"), failure.text);
}
