#include <boost/test/unit_test.hpp>

#include "lockstep/train/batch_geometry.hpp"

#include <algorithm>
#include <vector>

using namespace lockstep;

namespace {

struct Case {
  std::int64_t samples;
  std::int64_t batch;
  int world;
  int accumulate;
};
constexpr Case cases[] = {{.samples = 100, .batch = 10, .world = 1, .accumulate = 1},
                          {.samples = 101, .batch = 10, .world = 3, .accumulate = 1},
                          {.samples = 64, .batch = 64, .world = 4, .accumulate = 2},
                          {.samples = 1000, .batch = 37, .world = 3, .accumulate = 5}};

}  // namespace

BOOST_AUTO_TEST_CASE(every_position_of_an_epoch_is_taken_exactly_once) {
  for (const Case& c : cases) {
    std::vector<int> taken(static_cast<std::size_t>(c.samples), 0);
    std::int64_t steps = 0;
    for (int rank = 0; rank < c.world; ++rank) {
      const BatchGeometry geometry{.samples = c.samples,
                                   .global_batch = c.batch,
                                   .world_size = c.world,
                                   .rank = rank,
                                   .accumulate = c.accumulate};
      steps = geometry.steps_per_epoch();
      const BatchPlan plan = plan_training_batches(geometry, {}, steps);
      for (std::int64_t n = 0; const auto request = plan(n); ++n) {
        BOOST_TEST(request->epoch == 0);
        for (std::int64_t i = 0; i < request->count; ++i) {
          ++taken[static_cast<std::size_t>(request->first + i)];
        }
      }
    }
    for (std::int64_t p = 0; p < c.samples; ++p) {
      BOOST_TEST(taken[static_cast<std::size_t>(p)] == (p < steps * c.batch ? 1 : 0));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_micro_batch_that_separates_a_pair_is_found) {
  const auto begin = [](const Case& c, std::int64_t position) {
    return begin_within_pair({.samples = c.samples,
                              .global_batch = c.batch,
                              .world_size = c.world,
                              .accumulate = c.accumulate},
                             position)
        .value_or(-1);
  };
  BOOST_TEST(begin({.samples = 100, .batch = 16, .world = 4, .accumulate = 2}, 0) == -1);
  BOOST_TEST(begin({.samples = 100, .batch = 6, .world = 1, .accumulate = 1}, 12) == -1);
  BOOST_TEST(begin({.samples = 100, .batch = 16, .world = 3, .accumulate = 1}, 32) == 32 + 11);
  BOOST_TEST(begin({.samples = 100, .batch = 12, .world = 2, .accumulate = 2}, 0) == 3);
  BOOST_TEST(begin({.samples = 100, .batch = 16, .world = 2, .accumulate = 1}, 15) == 15);
  BOOST_TEST(begin({.samples = 20, .batch = 9, .world = 1, .accumulate = 1}, 0) == 9);
  BOOST_TEST(begin({.samples = 17, .batch = 9, .world = 1, .accumulate = 1}, 0) == -1);
}

BOOST_AUTO_TEST_CASE(a_plan_from_the_middle_continues_the_plan_from_the_start) {
  const BatchGeometry geometry{
      .samples = 103, .global_batch = 10, .world_size = 3, .rank = 1, .accumulate = 2};
  const BatchPlan whole = plan_training_batches(geometry, {}, 35);
  EpochPosition at;
  for (std::int64_t step = 0; step < 30; ++step) {
    const BatchPlan rest = plan_training_batches(geometry, at, 35 - step);
    for (std::int64_t n = 0; n < 4; ++n) BOOST_TEST((rest(n) == whole(step * 2 + n)));
    at = next_position(geometry, at);
  }
  BOOST_TEST((at == EpochPosition{.epoch = 3, .position = 0}));
  BOOST_TEST(!whole(70).has_value());
}

BOOST_AUTO_TEST_CASE(slices_differ_by_at_most_one_and_add_up) {
  for (const Case& c : cases) {
    std::int64_t total = 0;
    for (int micro = 0; micro < c.accumulate; ++micro) {
      std::int64_t all_ranks = 0;
      for (int rank = 0; rank < c.world; ++rank) {
        const BatchGeometry geometry{.samples = c.samples,
                                     .global_batch = c.batch,
                                     .world_size = c.world,
                                     .rank = rank,
                                     .accumulate = c.accumulate};
        const std::int64_t count = geometry.micro_batch(micro).count;
        BOOST_TEST(count >= geometry.smallest_micro_batch());
        BOOST_TEST(count <= geometry.largest_micro_batch());
        BOOST_TEST(geometry.largest_micro_batch() - geometry.smallest_micro_batch() <= 1);
        all_ranks += count;
      }
      const BatchGeometry geometry{.samples = c.samples,
                                   .global_batch = c.batch,
                                   .world_size = c.world,
                                   .accumulate = c.accumulate};
      BOOST_TEST(geometry.micro_samples(micro) == all_ranks);
      total += all_ranks;
    }
    BOOST_TEST(total == c.batch);
  }
}

BOOST_AUTO_TEST_CASE(evaluation_covers_every_sample_once) {
  for (const int world : {1, 2, 3, 4, 7}) {
    std::vector<int> taken(10, 0);
    for (int rank = 0; rank < world; ++rank) {
      const BatchPlan plan = plan_evaluation_batches(10, world, rank, 3);
      for (std::int64_t n = 0; const auto request = plan(n); ++n) {
        BOOST_TEST(request->count >= 1);
        for (std::int64_t i = 0; i < request->count; ++i) {
          ++taken[static_cast<std::size_t>(request->first + i)];
        }
      }
    }
    BOOST_TEST(std::all_of(taken.begin(), taken.end(), [](int n) { return n == 1; }));
  }
}
