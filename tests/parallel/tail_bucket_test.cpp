#include "lockstep/parallel/tail_bucket.hpp"

#include "lockstep/core/philox.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <vector>

using namespace lockstep;

namespace {

constexpr double slow = 0.03;
constexpr double usual = 0.1;

/// Two batch norms of different widths and momenta.
Graph two_norms() {
  Graph graph("norms", {3, 4, 4});
  const ValueId first = graph.batch_norm(0, {.name = "a", .momentum = usual});
  const ValueId conv = graph.conv2d(first, {.name = "conv", .out_channels = 5});
  graph.batch_norm(conv, {.name = "b", .momentum = slow});
  return graph;
}

constexpr std::size_t statistics_count = 2 * (3 + 5);

double momentum_of(std::size_t index) {
  return index < 6 ? usual : slow;
}

std::vector<float> random_statistics(PhiloxStream& random) {
  std::vector<float> values(statistics_count);
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

/// Adds the tail of another rank, like the reduction.
void add(std::vector<float>& sum, const std::vector<float>& tail) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += tail[i];
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_tail_holds_all_statistics_and_eight_sums) {
  BOOST_TEST(TailBucket(two_norms()).size() == statistics_count + 8);
  BOOST_TEST(TailBucket(Graph("none", {3, 2, 2})).size() == 8u);
}

BOOST_AUTO_TEST_CASE(fixed_statistics_stay_as_they_are) {
  Graph graph = two_norms();
  const Node& norm = graph.nodes()[1];
  for (const ParameterId id : norm.parameters) graph.set_lr_scale(id, 0);
  graph.fix_statistics(norm);
  const TailBucket tail_bucket(graph);
  std::vector<float> tail(tail_bucket.size());
  const std::vector<float> statistics(statistics_count, std::numeric_limits<float>::infinity());
  std::vector<float> running(statistics_count, 0.3F);

  tail_bucket.fold(tail, statistics, 1);
  tail_bucket.update_running(tail, 1, running);

  for (std::size_t i = 0; i < statistics_count; ++i) {
    BOOST_TEST(tail[i] == (i < 6 ? 0 : statistics[i]));
    BOOST_TEST(running[i] == (i < 6 ? 0.3F : statistics[i]));
  }
}

BOOST_AUTO_TEST_CASE(folding_equals_a_running_average_step_by_step) {
  const TailBucket tail_bucket(two_norms());
  for (int micro_steps = 1; micro_steps <= 4; ++micro_steps) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      PhiloxStream random(8, RandomPurpose::synthetic_data, static_cast<std::uint64_t>(micro_steps),
                          static_cast<std::uint32_t>(ranks));
      std::vector<float> running = random_statistics(random);
      std::vector<double> expected(running.begin(), running.end());
      std::vector<std::vector<float>> tails(static_cast<std::size_t>(ranks),
                                            std::vector<float>(tail_bucket.size(), 99.0F));
      for (auto& tail : tails) tail_bucket.clear(tail);

      for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
        // Micro-batches of different sizes.
        std::vector<double> samples;
        double all = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          samples.push_back(1 + random.next_below(9));
          all += samples.back();
        }
        std::vector<double> mean(statistics_count);
        for (std::size_t rank = 0; rank < tails.size(); ++rank) {
          const std::vector<float> statistics = random_statistics(random);
          for (std::size_t i = 0; i < mean.size(); ++i) {
            mean[i] += samples[rank] / all * static_cast<double>(statistics[i]);
          }
          tail_bucket.fold(tails[rank], statistics, samples[rank] / all);
        }
        for (std::size_t i = 0; i < mean.size(); ++i) {
          expected[i] = (1 - momentum_of(i)) * expected[i] + momentum_of(i) * mean[i];
        }
      }
      std::vector<float> reduced(tail_bucket.size());
      for (const auto& tail : tails) add(reduced, tail);
      tail_bucket.update_running(reduced, micro_steps, running);

      for (std::size_t i = 0; i < running.size(); ++i) {
        // The values are about 1, with about twelve fp32 roundings.
        BOOST_TEST(std::abs(static_cast<double>(running[i]) - expected[i]) < 2e-6);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(sums_are_read_as_they_were_written) {
  const TailBucket tail_bucket(two_norms());
  std::vector<float> tail(tail_bucket.size());

  tail_bucket.write_sums(tail, {.loss = 2.5,
                                .metrics = {{3, 7}},
                                .samples = 8,
                                .not_finite = 1,
                                .stop_requests = 2,
                                .save_requests = 3,
                                .failed = 4});

  const StepSums sums = tail_bucket.read_sums(tail);
  BOOST_TEST(sums.loss == 2.5);
  BOOST_TEST(sums.metrics[0] == 3);
  BOOST_TEST(sums.metrics[1] == 7);
  BOOST_TEST(sums.samples == 8);
  BOOST_TEST(sums.not_finite == 1);
  BOOST_TEST(sums.stop_requests == 2);
  BOOST_TEST(sums.save_requests == 3);
  BOOST_TEST(sums.failed == 4);
}

BOOST_AUTO_TEST_CASE(sums_add_up_over_ranks_as_counts) {
  const TailBucket tail_bucket(two_norms());
  std::vector<float> reduced(tail_bucket.size());
  for (int rank = 0; rank < 5; ++rank) {
    std::vector<float> tail(tail_bucket.size());
    tail_bucket.write_sums(tail, {.loss = 0.5,
                                  .samples = 4,
                                  .not_finite = rank == 1,
                                  .stop_requests = rank >= 2,
                                  .save_requests = 0,
                                  .failed = 1});
    add(reduced, tail);
  }

  const StepSums sums = tail_bucket.read_sums(reduced);

  BOOST_TEST(sums.loss == 2.5);
  BOOST_TEST(sums.samples == 20);
  BOOST_TEST(sums.not_finite == 1);
  BOOST_TEST(sums.stop_requests == 3);
  BOOST_TEST(sums.save_requests == 0);
  BOOST_TEST(sums.failed == 5);
}

BOOST_AUTO_TEST_CASE(sums_and_statistics_do_not_touch_each_other) {
  const TailBucket tail_bucket(two_norms());
  std::vector<float> tail(tail_bucket.size());
  const std::vector<float> ones(statistics_count, 1.0F);

  tail_bucket.write_sums(tail, {.loss = 2.5, .failed = 4});
  tail_bucket.fold(tail, ones, 1.0);
  BOOST_TEST(tail_bucket.read_sums(tail).loss == 2.5);
  BOOST_TEST(tail_bucket.read_sums(tail).failed == 4);

  const std::vector<float> before = tail;
  tail_bucket.write_sums(tail, {});
  BOOST_TEST(std::equal(before.begin(), before.begin() + statistics_count, tail.begin()));
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_leaves_the_counts_readable) {
  const TailBucket tail_bucket(two_norms());
  std::vector<float> tail(tail_bucket.size());

  tail_bucket.write_sums(
      tail, {.loss = std::numeric_limits<double>::quiet_NaN(), .samples = 8, .not_finite = 1});

  const StepSums sums = tail_bucket.read_sums(tail);
  BOOST_TEST(std::isnan(sums.loss));
  BOOST_TEST(sums.samples == 8);
  BOOST_TEST(sums.not_finite == 1);
  BOOST_TEST(sums.failed == 0);
}

BOOST_AUTO_TEST_CASE(clear_zeroes_the_whole_tail) {
  const TailBucket tail_bucket(two_norms());
  std::vector<float> tail(tail_bucket.size(), std::numeric_limits<float>::quiet_NaN());

  tail_bucket.clear(tail);

  BOOST_TEST(std::all_of(tail.begin(), tail.end(), [](float value) { return value == 0; }));
}
