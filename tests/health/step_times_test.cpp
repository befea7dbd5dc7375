#include <boost/test/unit_test.hpp>

#include "lockstep/core/philox.hpp"
#include "lockstep/health/host_list.hpp"
#include "lockstep/health/step_times.hpp"

#include <cmath>

using namespace lockstep;

namespace {

/// A rank's epoch in which steps take 100 ms with 10% noise, and 5% of the steps 1 s more.
RankTimes noisy_epoch(PhiloxStream& random, double slower = 1, int steps = 200) {
  StepTimes times;
  for (int i = 0; i < steps; ++i) {
    const double hiccup = random.next_double() < 0.05 ? 1.0 : 0.0;
    const double compute = slower * 0.09 * (1 + 0.1 * random.next_normal()) + hiccup;
    times.add({.data = 0.01 * (1 + random.next_double()),
               .forward = compute / 3,
               .backward = compute / 2,
               .communication = 0.02,
               .optimizer = compute / 6});
  }
  return times.summary();
}

RankTimes steady(double own, double steps = 100) {
  return {.data = {},
          .compute = {.p50 = own, .max = own},
          .communication = {},
          .own_first = own,
          .own_second = own,
          .steps = steps};
}

}  // namespace

BOOST_AUTO_TEST_CASE(medians_and_maxima_are_those_of_the_steps) {
  StepTimes times;
  for (int i = 1; i <= 9; ++i) {
    times.add({.data = i * 1.0,
               .forward = i * 2.0,
               .backward = i * 3.0,
               .communication = i * 10.0,
               .optimizer = i * 5.0});
  }

  const RankTimes summary = times.summary();

  BOOST_TEST(summary.data.p50 == 5.0);
  BOOST_TEST(summary.data.max == 9.0);
  BOOST_TEST(summary.compute.p50 == 50.0);
  BOOST_TEST(summary.communication.max == 90.0);
  BOOST_TEST(summary.own_first == 22.0);   // steps 1 to 4
  BOOST_TEST(summary.own_second == 77.0);  // steps 5 to 9
  BOOST_TEST(summary.steps == 9.0);

  times.clear();
  BOOST_TEST(times.summary().steps == 0.0);
  BOOST_TEST(times.summary().data.max == 0.0);
}

BOOST_AUTO_TEST_CASE(a_long_epoch_keeps_its_median_and_every_maximum) {
  StepTimes times;
  constexpr int steps = 100000;
  for (int i = 0; i < steps; ++i) {
    PhaseTimes step;
    step.data = i == 77777 ? 1e9 : i;
    times.add(step);
  }

  const RankTimes summary = times.summary();

  BOOST_TEST(std::abs(summary.data.p50 - steps / 2.0) < steps / 1000.0);
  BOOST_TEST(summary.data.max == 1e9);
  BOOST_TEST(summary.steps == static_cast<double>(steps));
}

BOOST_AUTO_TEST_CASE(a_rank_slowed_twofold_is_found_among_any_number) {
  for (const std::size_t ranks : {2U, 3U, 4U, 64U}) {
    std::vector<RankTimes> all(ranks, steady(0.1));
    all.back() = steady(0.2);

    const auto found = find_stragglers(all, 1.5);

    BOOST_REQUIRE(found.size() == 1U);
    BOOST_TEST(found[0].rank == static_cast<int>(ranks) - 1);
    BOOST_TEST(std::abs(found[0].factor - 2) < 1e-9);
    BOOST_TEST(std::abs(found[0].compute - 2) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_slow_in_only_half_an_epoch_is_not_named) {
  std::vector<RankTimes> all(4, steady(0.1));
  all[1].own_first = 0.4;
  all[2].own_second = 0.4;

  BOOST_TEST(find_stragglers(all, 1.5).empty());
}

BOOST_AUTO_TEST_CASE(no_rank_is_named_without_a_factor_or_after_few_steps) {
  const std::vector<RankTimes> slow{steady(0.1), steady(0.9)};
  const std::vector<RankTimes> few{steady(0.1, 19), steady(0.9, 19)};

  BOOST_TEST(find_stragglers(slow, 0).empty());
  BOOST_TEST(find_stragglers(few, 1.5).empty());
  BOOST_TEST(find_stragglers(slow, 1.5).size() == 1U);
  BOOST_TEST(find_stragglers({}, 1.5).empty());
}

BOOST_AUTO_TEST_CASE(noise_neither_names_nor_hides_a_rank) {
  PhiloxStream random(1, RandomPurpose::synthetic_data, 0, 0);
  for (int run = 0; run < 50; ++run) {
    std::vector<RankTimes> all;
    for (int rank = 0; rank < 8; ++rank) all.push_back(noisy_epoch(random));
    BOOST_TEST(find_stragglers(all, 1.5).empty());

    all[3] = noisy_epoch(random, 2);
    const auto found = find_stragglers(all, 1.5);
    BOOST_REQUIRE(found.size() == 1U);
    BOOST_TEST(found[0].rank == 3);
  }
}

BOOST_AUTO_TEST_CASE(a_host_list_has_the_format_of_slurm) {
  BOOST_TEST(host_list({"n7.cluster", "n3", "n7", "n3.cluster"}) == "n3,n7");
  BOOST_TEST(host_list({}).empty());
}

BOOST_AUTO_TEST_CASE(a_slow_gpu_is_found_although_all_hosts_are_equally_fast) {
  std::vector<RankTimes> ranks(4, steady(0.01));
  for (RankTimes& rank : ranks) rank.gpu_first = rank.gpu_second = 0.1;
  ranks[2].gpu_first = 0.21;
  ranks[2].gpu_second = 0.2;
  ranks[3].gpu_first = 0.3;  // slow in one half only

  const auto found = find_stragglers(ranks, 1.5);

  BOOST_TEST_REQUIRE(found.size() == 1);
  BOOST_TEST(found[0].rank == 2);
  BOOST_TEST((found[0].by == Straggler::By::gpu));
  BOOST_TEST(std::abs(found[0].factor - 2) < 1e-9);
  BOOST_TEST(find_stragglers(ranks, 2.5).empty());
}

BOOST_AUTO_TEST_CASE(a_slow_gpu_is_named_rather_than_its_host_which_waits_for_it) {
  std::vector<RankTimes> ranks(3, steady(0.01));
  for (RankTimes& rank : ranks) rank.gpu_first = rank.gpu_second = 0.1;
  ranks[1] = steady(0.03);
  ranks[1].gpu_first = ranks[1].gpu_second = 0.2;

  const auto found = find_stragglers(ranks, 1.5);

  BOOST_TEST_REQUIRE(found.size() == 1);
  BOOST_TEST((found[0].by == Straggler::By::gpu));
  BOOST_TEST(std::abs(found[0].factor - 2) < 1e-9);
}

BOOST_AUTO_TEST_CASE(gpu_times_are_summarised_if_they_are_measured) {
  StepTimes times;
  BOOST_TEST(to_string(times.summary()).find("GPU") == std::string::npos);
  for (int i = 1; i <= 4; ++i) times.add({.gpu = i * 1e-3});

  const RankTimes summary = times.summary();

  BOOST_TEST(summary.gpu.p50 == 2e-3);
  BOOST_TEST(summary.gpu_first == 1e-3);
  BOOST_TEST(summary.gpu_second == 3e-3);
  BOOST_TEST(to_string(summary).find(", GPU 2.0/4.0 ms") != std::string::npos);
}
