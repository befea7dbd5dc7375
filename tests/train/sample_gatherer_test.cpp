#include "sample_gatherer.hpp"

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/train/batch_geometry.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <map>
#include <vector>

using namespace lockstep;

namespace {

Communicator* world = nullptr;
constexpr std::int64_t classes = 3;

/// Evaluates `samples` samples whose label is their index, and whose logits follow from it. Ranks
/// below `failed` pass nothing. Returns what rank 0 receives, by index of the sample: how often,
/// and in how large pieces at most.
struct Received {
  std::map<std::int64_t, int> times;
  std::size_t largest = 0;
};
Received gathered(const SampleGatherer::Options& options, int failed = 0) {
  SampleGatherer gatherer(*world, options);
  const auto plan = [&](int rank) {
    return plan_evaluation_batches(options.samples, world->size(), rank, options.batch_size);
  };
  Received received;
  for (std::int64_t round = 0; plan(0)(round).has_value(); ++round) {
    std::vector<std::int32_t> labels;
    std::vector<float> logits(static_cast<std::size_t>(options.batch_size * classes), -1.0F);
    const auto batch = plan(world->rank())(round);
    for (std::int64_t i = 0; batch && i < batch->count; ++i) {
      const std::int64_t sample = batch->first + i;
      labels.push_back(static_cast<std::int32_t>(sample));
      for (std::int64_t k = 0; k < classes; ++k) {
        logits[static_cast<std::size_t>(i * classes + k)] = static_cast<float>(10 * sample + k);
      }
    }
    if (world->rank() < failed) labels.clear(), logits.clear();
    gatherer.gather(labels, logits, [&](const EvaluatedSamples& piece) {
      BOOST_TEST(world->rank() == 0);
      BOOST_TEST_REQUIRE(piece.logits.size() == piece.labels.size() * classes);
      received.largest = std::max(received.largest, piece.labels.size());
      for (std::size_t i = 0; i < piece.labels.size(); ++i) {
        const std::int64_t sample = piece.first + static_cast<std::int64_t>(i);
        ++received.times[sample];
        if (failed > 0) continue;
        BOOST_TEST(piece.labels[i] == sample);
        for (std::size_t k = 0; k < classes; ++k) {
          BOOST_TEST(piece.logits[i * classes + k] ==
                     static_cast<float>(10 * sample) + static_cast<float>(k));
        }
      }
    });
  }
  return received;
}

}  // namespace

BOOST_AUTO_TEST_CASE(rank_0_receives_every_sample_once) {
  for (const std::int64_t samples : {1, 2, 3, 7, 24, 25}) {
    for (const std::int64_t batch_size : {1, 4, 64}) {
      const Received received =
          gathered({.samples = samples, .batch_size = batch_size, .classes = classes});

      const auto expected = static_cast<std::size_t>(world->rank() == 0 ? samples : 0);
      BOOST_TEST(received.times.size() == expected);
      for (const auto& [sample, times] : received.times) {
        BOOST_TEST(sample < samples);
        BOOST_TEST(times == 1);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(pieces_are_as_small_as_requested) {
  // Three rows of a rank, of 12 bytes each; then less than a row.
  const std::int64_t row = world->size() * classes * static_cast<std::int64_t>(sizeof(float));
  for (const std::int64_t rows : {3, 0}) {
    const Received received = gathered(
        {.samples = 47, .batch_size = 8, .classes = classes, .piece_bytes = rows * row + row / 2});

    if (world->rank() != 0) continue;
    BOOST_TEST(received.times.size() == 47u);
    BOOST_TEST(received.largest == static_cast<std::size_t>(std::max<std::int64_t>(rows, 1)));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_failed_does_not_stop_the_others) {
  const Received received =
      gathered({.samples = 25, .batch_size = 4, .classes = classes}, world->size() - 1);

  if (world->rank() == 0) BOOST_TEST(received.times.size() == 25u);
}

int main(int argc, char** argv) {
  const MpiEnvironment environment(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
