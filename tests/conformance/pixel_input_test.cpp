#include "conformance/fixtures.hpp"
#include "conformance/harness.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/data/augment.hpp"
#include "lockstep/data/mix.hpp"
#include "lockstep/data/resample.hpp"
#include "lockstep/engine/engine.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

using namespace lockstep;
using namespace lockstep::conformance;

namespace {

Graph tiny_network() {
  Graph graph("tiny", {3, 6, 5});
  ValueId x =
      graph.conv2d(graph.input(), {.name = "conv", .out_channels = 8, .kernel = 3, .padding = 1});
  x = graph.relu(graph.batch_norm(x, {.name = "bn"}));
  x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 4});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

/// Whether the cuts have the network's extents and are copied, or other extents and are resampled.
enum class Cuts { copied, resampled };
/// Whether images are erased and mixed in pairs.
enum class Mixing { none, pairs };

/// A batch of stored 8x9 images, and the same batch as input values of the network, in the engine's
/// memory.
class PixelsAndValues {
 public:
  static constexpr std::int64_t height = 8;
  static constexpr std::int64_t width = 9;
  PixelsAndValues(Engine& engine, std::int64_t count, std::uint64_t seed, Cuts cuts = Cuts::copied,
                  Mixing mixing = Mixing::none)
      : count_(count),
        pixels_(engine.input_format().memory, static_cast<std::size_t>(count * height * width * 3)),
        cuts_(engine.input_format().memory, static_cast<std::size_t>(count)),
        table_(engine.input_format().memory, 3 * 256),
        labels_(engine.input_format().memory, static_cast<std::size_t>(count)),
        mixes_(engine.input_format().memory,
               mixing == Mixing::none ? 0 : static_cast<std::size_t>(count)),
        erased_(engine.input_format().memory, mixes_.size()),
        images_(static_cast<std::size_t>(count * 6 * 5 * 3)) {
    PhiloxStream random(seed, RandomPurpose::augmentation, 0, 0);
    for (std::size_t i = 0; i < table_.size(); ++i) {
      table_[i] = static_cast<float>(i % 256) / 128.0F - 1.0F + static_cast<float>(i / 256);
    }
    for (auto& pixel : pixels_.span()) pixel = static_cast<std::uint8_t>(random.next_below(256));
    for (std::int64_t n = 0; n < count; ++n) {
      labels_[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(random.next_below(4));
      PixelCut& cut = cuts_[static_cast<std::size_t>(n)];
      cut = {.height = cuts == Cuts::copied ? 6 : draw(random, 1, height),
             .width = cuts == Cuts::copied ? 5 : draw(random, 1, width)};
      cut.top = draw(random, 0, height - cut.height);
      cut.left = draw(random, 0, width - cut.width);
      cut.flip = draw(random, 0, 1);
      cut.filter = n % 2 == 0 ? ResampleFilter::bilinear : ResampleFilter::bicubic;
      write_values(n, cut);
      if (mixing == Mixing::pairs) mix(random, n);
    }
  }

  [[nodiscard]] Batch pixels(std::int64_t count) const {
    return {.targets = targets(),
            .size = count,
            .pixels = {.data = pixels_.data(),
                       .height = height,
                       .width = width,
                       .cuts = cuts_.data(),
                       .values = table_.data(),
                       .erased = erased_.data()}};
  }
  [[nodiscard]] Batch values(std::int64_t count) const {
    return {.values = images_.data(), .targets = targets(), .size = count};
  }
  /// Overwrites the batch, as a loader does after its use.
  void overwrite() {
    std::ranges::fill(pixels_.span(), std::uint8_t{7});
    std::ranges::fill(labels_.span(), 3);
    std::ranges::fill(mixes_.span(), ImageMix{});
    std::ranges::fill(erased_.span(), PixelBox{});
  }

 private:
  [[nodiscard]] Targets targets() const {
    return {.labels = labels_.data(), .mixes = mixes_.data()};
  }
  /// Returns a number from `least` to `most`.
  static std::int32_t draw(PhiloxStream& random, std::int64_t least, std::int64_t most) {
    return static_cast<std::int32_t>(
        least + random.next_below(static_cast<std::uint32_t>(most - least + 1)));
  }

  /// Computes the values of one image as on the CPU, without resampling a cut of the network's
  /// extents.
  void write_values(std::int64_t n, const PixelCut& cut) {
    constexpr std::size_t bytes = height * width * 3;
    const auto stored =
        std::as_bytes(pixels_.span()).subspan(static_cast<std::size_t>(n) * bytes, bytes);
    const ImageShape network{.channels = 3, .height = 6, .width = 5};
    const Region region{.top = cut.top, .left = cut.left, .height = cut.height, .width = cut.width};
    Image image;
    Resampler().resize(stored, {.channels = 3, .height = height, .width = width},
                       resize_of(region, network, cut.filter), network, image);
    constexpr std::size_t values = 90;  // of 6x5 pixels with 3 channels
    for (std::size_t i = 0; i < values; ++i) {
      const std::size_t x = i / 3 % 5;
      const std::size_t from = cut.flip != 0 ? i + (4 - 2 * x) * 3 : i;
      const auto pixel = std::to_integer<std::size_t>(image.pixels[from]);
      images_[static_cast<std::size_t>(n) * values + i] = table_[i % 3 * 256 + pixel];
    }
  }

  /// Erases a box of image n, and mixes it with the one before if it is the second of a pair.
  void mix(PhiloxStream& random, std::int64_t n) {
    const ImageShape image{.channels = 3, .height = 6, .width = 5};
    const auto at = static_cast<std::size_t>(n);
    erased_[at] = draw_erased_box(random, 0.7, image);
    erase_box(erased_[at], image, ImageLayout::nhwc, images_.data() + n * 90);
    mixes_[at] = {.partner = static_cast<std::int32_t>(n)};
    if (n % 2 == 0) return;
    mixes_[at] = draw_mix(random, {.mixup = 0.4, .cutmix = 1}, image);
    mixes_[at].partner = static_cast<std::int32_t>(n - 1);
    mixes_[at - 1] = mixes_[at];
    mixes_[at - 1].partner = static_cast<std::int32_t>(n);
    float* const second = images_.data() + n * 90;
    mix_pair(mixes_[at], image, ImageLayout::nhwc, second - 90, second);
  }

  std::int64_t count_;
  HostBuffer<std::uint8_t> pixels_;
  HostBuffer<PixelCut> cuts_;
  HostBuffer<float> table_;
  HostBuffer<std::int32_t> labels_;
  HostBuffer<ImageMix> mixes_;  ///< empty: no mixing
  HostBuffer<PixelBox> erased_;
  AlignedBuffer<float> images_;
};

struct Result {
  double loss;
  std::vector<float> logits;
  std::vector<float> gradients;
  friend bool operator==(const Result&, const Result&) = default;
};

Result train_on(Engine& engine, Program& program, const Batch& batch) {
  program.forward(batch);
  program.backward({.loss_scale = 0.25F, .accumulate = false});
  const auto logits = program.logits();
  return {.loss = program.metrics().loss,
          .logits = {logits.begin(), logits.end()},
          .gradients = gradients_of(engine)};
}

template <typename Body>
void for_each_engine_of_pixels(Body&& body) {
  const Graph graph = tiny_network();
  int engines = 0;
  for (const Candidate& candidate : candidates()) {
    const auto engine = candidate.make(graph);
    if (engine->input_format().content != ImageContent::pixels) continue;
    ++engines;
    load(*engine, oracle::random_state(graph, 3));
    BOOST_TEST_CONTEXT(candidate.name) {
      body(*engine);
    }
  }
  BOOST_TEST(engines > 0);
}

}  // namespace

BOOST_AUTO_TEST_CASE(pixels_and_values_give_the_same_step) {
  for_each_engine_of_pixels([](Engine& engine) {
    const PixelsAndValues batch(engine, 6, 1);
    const auto program = engine.compile_training(6);

    const Result of_values = train_on(engine, *program, batch.values(6));
    const Result of_pixels = train_on(engine, *program, batch.pixels(6));

    BOOST_TEST((of_pixels == of_values));
  });
}

BOOST_AUTO_TEST_CASE(resampled_pixels_and_values_give_the_same_step) {
  for_each_engine_of_pixels([](Engine& engine) {
    const PixelsAndValues batch(engine, 40, 1, Cuts::resampled);
    const auto program = engine.compile_training(40);

    const Result of_values = train_on(engine, *program, batch.values(40));
    const Result of_pixels = train_on(engine, *program, batch.pixels(40));

    BOOST_TEST((of_pixels == of_values));
  });
}

BOOST_AUTO_TEST_CASE(erased_and_mixed_pixels_and_values_give_the_same_step) {
  for_each_engine_of_pixels([](Engine& engine) {
    const auto program = engine.compile_training(15);
    for (const Cuts cuts : {Cuts::copied, Cuts::resampled}) {
      const PixelsAndValues batch(engine, 15, 1, cuts, Mixing::pairs);
      const PixelsAndValues alone(engine, 15, 1, cuts);

      const Result of_values = train_on(engine, *program, batch.values(15));
      const Result of_pixels = train_on(engine, *program, batch.pixels(15));

      BOOST_TEST((of_pixels == of_values));
      BOOST_TEST(of_pixels.loss != train_on(engine, *program, alone.pixels(15)).loss);
    }
  });
}

BOOST_AUTO_TEST_CASE(prefetched_batches_do_not_overwrite_each_other) {
  for_each_engine_of_pixels([](Engine& engine) {
    const auto program = engine.compile_training(4);
    std::vector<Result> expected;
    const auto make = [&](std::uint64_t seed) {
      return PixelsAndValues(engine, 4, seed, Cuts::copied,
                             seed % 2 == 1 ? Mixing::pairs : Mixing::none);
    };
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      expected.push_back(train_on(engine, *program, make(seed).values(4)));
    }

    // The order of training: the next batch is prefetched when the work of this one is queued, and
    // the memory of a batch is reused when its metrics are available.
    std::vector<PixelsAndValues> batches;
    for (std::uint64_t seed = 0; seed < 5; ++seed) batches.push_back(make(seed));
    engine.prefetch(batches[0].pixels(4));
    for (std::size_t i = 0; i < 5; ++i) {
      program->forward(batches[i].pixels(4));
      program->backward({.loss_scale = 0.25F, .accumulate = false});
      const double loss = program->metrics().loss;
      batches[i].overwrite();
      if (i + 1 < 5) engine.prefetch(batches[i + 1].pixels(4));

      BOOST_TEST(loss == expected[i].loss);
      BOOST_TEST((gradients_of(engine) == expected[i].gradients));
    }
  });
}

BOOST_AUTO_TEST_CASE(evaluation_runs_while_a_training_batch_is_prefetched) {
  for_each_engine_of_pixels([](Engine& engine) {
    const PixelsAndValues training_batch(engine, 4, 1);
    const auto training = engine.compile_training(4);
    const auto inference = engine.compile_inference(6);
    const PixelsAndValues evaluated(engine, 6, 2);
    inference->forward(evaluated.values(5));
    const double expected = inference->metrics().loss;
    const Result expected_step = train_on(engine, *training, training_batch.values(4));

    engine.prefetch(training_batch.pixels(4));
    for (int repeat = 0; repeat < 3; ++repeat) {
      inference->forward(evaluated.pixels(5));
      BOOST_TEST(inference->metrics().loss == expected);
    }

    BOOST_TEST((train_on(engine, *training, training_batch.pixels(4)) == expected_step));
  });
}

BOOST_AUTO_TEST_CASE(a_third_prefetched_batch_is_refused) {
  for_each_engine_of_pixels([](Engine& engine) {
    std::vector<PixelsAndValues> batches;
    for (std::uint64_t seed = 0; seed < 3; ++seed) batches.emplace_back(engine, 4, seed);
    engine.prefetch(batches[0].pixels(4));
    engine.prefetch(batches[1].pixels(4));

    BOOST_CHECK_THROW(engine.prefetch(batches[2].pixels(4)), Error);
  });
}
