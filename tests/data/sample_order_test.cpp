#include "lockstep/data/sample_order.hpp"

#include "lockstep/core/philox.hpp"
#include "lockstep/core/slice.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <set>
#include <unordered_set>
#include <vector>

using lockstep::SampleCopy;
using lockstep::SampleOrder;
using lockstep::spread_copies;

namespace {

constexpr std::int64_t sizes[] = {1,  2,  3,  4,  5,   7,   8,   9,    13,   15,   16,  17,
                                  31, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 997, 65537};

/// Distance of a chi-square value of `degrees` degrees of freedom from its mean, in standard
/// deviations.
double deviations(double chi_square, double degrees) {
  return (chi_square - degrees) / std::sqrt(2 * degrees);
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_epoch_visits_every_sample_exactly_once) {
  for (const std::int64_t n : sizes) {
    for (const std::int64_t epoch : {0, 1, 90}) {
      const SampleOrder order(n, 42);
      std::vector<int> visits(static_cast<std::size_t>(n));

      for (std::int64_t p = 0; p < n; ++p) {
        const std::int64_t sample = order.at(epoch, p);
        BOOST_REQUIRE(sample >= 0 && sample < n);
        ++visits[static_cast<std::size_t>(sample)];
      }

      for (const int count : visits) BOOST_REQUIRE_EQUAL(count, 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(blocks_are_contiguous_for_any_size_of_the_last_one) {
  for (const std::int64_t n : sizes) {
    for (const std::int64_t block : {1, 2, 3, 5, 16, 100, 100'000}) {
      const SampleOrder order(n, 7, block);
      std::vector<int> visits(static_cast<std::size_t>(n));

      for (std::int64_t p = 0; p < n; ++p) {
        const std::int64_t sample = order.at(3, p);
        BOOST_REQUIRE(sample >= 0 && sample < n);
        ++visits[static_cast<std::size_t>(sample)];
        const bool block_goes_on = (sample + 1) % block != 0 && sample + 1 < n;
        if (block_goes_on) BOOST_REQUIRE_EQUAL(order.at(3, p + 1), sample + 1);
      }

      for (const int count : visits) BOOST_REQUIRE_EQUAL(count, 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(ten_thousand_million_samples_need_no_table) {
  for (const std::int64_t n :
       {std::int64_t{10'000'000'000}, (std::int64_t{1} << 40) + 1, (std::int64_t{1} << 62) - 1}) {
    const SampleOrder order(n, 1);
    std::unordered_set<std::int64_t> positions;
    std::unordered_set<std::int64_t> seen;
    lockstep::PhiloxStream random(5, lockstep::RandomPurpose::sample_order, 0, 9);

    for (int i = 0; i < 50'000; ++i) {
      const auto p = static_cast<std::int64_t>(random.next_u64() % static_cast<std::uint64_t>(n));
      const std::int64_t sample = order.at(2, p);
      BOOST_REQUIRE(sample >= 0 && sample < n);
      BOOST_REQUIRE_EQUAL(seen.insert(sample).second, positions.insert(p).second);
    }
    for (std::int64_t p = 0; p < 50'000; ++p) {
      BOOST_REQUIRE_EQUAL(seen.insert(order.at(2, p)).second, positions.insert(p).second);
    }
  }
}

// A run that is resumed, by another version too, must visit the rest of its epoch.
BOOST_AUTO_TEST_CASE(the_order_stays_what_it_has_been) {
  struct Case {
    std::int64_t samples;
    std::uint64_t seed;
    std::int64_t epoch;
    std::int64_t block;
    std::vector<std::int64_t> expected;  ///< at the first two positions, the middle, the last
  };
  for (const Case& each :
       {Case{10, 42, 0, 1, {9, 6, 7, 3}}, Case{10, 42, 1, 1, {8, 9, 0, 1}},
        Case{1'281'167, 0, 3, 1, {853'239, 476'535, 1'139'923, 603'149}},
        Case{10'000'000'000, 7, 2, 1, {4'485'218'706, 4'648'164'831, 2'585'828'074, 3'681'656'723}},
        Case{1000, 5, 1, 16, {576, 577, 460, 431}}}) {
    const SampleOrder order(each.samples, each.seed, each.block);
    std::vector<std::int64_t> found;
    for (const std::int64_t position :
         {std::int64_t{0}, std::int64_t{1}, each.samples / 2, each.samples - 1}) {
      found.push_back(order.at(each.epoch, position));
    }
    BOOST_TEST(found == each.expected, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(an_epoch_of_copies_has_its_length_and_all_copies_of_fewer_samples) {
  for (const std::int64_t n : {12, 100, 1023}) {
    for (const std::int64_t repeats : {1, 2, 3, 4, 7}) {
      const SampleOrder order(n, 3);
      std::set<std::pair<std::int64_t, std::int64_t>> copies;
      std::set<std::int64_t> seen;
      for (std::int64_t p = 0; p < n; ++p) {
        const SampleCopy at = order.copy_at(1, p, repeats);
        BOOST_REQUIRE(at.copy >= 0 && at.copy < repeats);
        copies.insert({at.sample, at.copy});
        seen.insert(at.sample);
      }

      BOOST_TEST(std::ssize(copies) == n);
      BOOST_TEST(std::ssize(seen) == (n + repeats - 1) / repeats);
    }
  }
}

BOOST_AUTO_TEST_CASE(spread_copies_permute_the_positions_of_a_step) {
  for (const std::int64_t size : {1, 2, 5, 12, 64, 97}) {
    for (const std::int64_t repeats : {1, 2, 3, 4, 7, 200}) {
      std::vector<int> hits(static_cast<std::size_t>(size));

      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t place = spread_copies(i, size, repeats);
        BOOST_REQUIRE(place >= 0 && place < size);
        ++hits[static_cast<std::size_t>(place)];
        if (repeats == 1) BOOST_REQUIRE_EQUAL(place, i);
      }

      for (const int count : hits) BOOST_REQUIRE_EQUAL(count, 1);
    }
  }
}

// As torchvision's RASampler, whose rank r takes position i * ranks + r of the order of copies.
BOOST_AUTO_TEST_CASE(each_rank_gets_other_copies_of_the_samples_of_a_step) {
  constexpr std::int64_t n = 1000;
  constexpr std::int64_t batch = 48;
  const SampleOrder order(n, 3);
  for (const std::int64_t repeats : {2, 3, 4, 6}) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 8, 16}) {
      for (std::int64_t step = 0; step < n / batch; ++step) {
        std::multiset<std::int64_t> of_step;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const lockstep::Slice slice = lockstep::slice_of(batch, ranks, rank);
          std::set<std::int64_t> of_rank;
          for (std::int64_t i = slice.begin; i < slice.end(); ++i) {
            const std::int64_t p = step * batch + spread_copies(i, batch, repeats);
            of_rank.insert(order.copy_at(0, p, repeats).sample);
            of_step.insert(order.copy_at(0, p, repeats).sample);
          }
          // With fewer ranks than copies, a rank has about repeats / ranks copies of a sample.
          if (ranks >= repeats) BOOST_REQUIRE_EQUAL(std::ssize(of_rank), slice.count);
        }
        for (const std::int64_t sample : of_step) {
          BOOST_REQUIRE_EQUAL(of_step.count(sample), static_cast<std::size_t>(repeats));
        }
      }
    }
  }
}

// Over many epochs and seeds, each cell (position, sample) must be hit equally often. The
// probability of exceeding five deviations by chance is one in three million.
BOOST_AUTO_TEST_CASE(every_sample_is_equally_likely_at_every_position) {
  for (const std::int64_t n : {2, 3, 4, 5, 6, 8, 10, 17, 33, 65}) {
    for (const bool by_seed : {false, true}) {
      constexpr int draws = 20'000;
      std::vector<double> counts(static_cast<std::size_t>(n * n));

      for (int i = 0; i < draws; ++i) {
        const SampleOrder order(n, by_seed ? static_cast<std::uint64_t>(i) : 11);
        for (std::int64_t p = 0; p < n; ++p) {
          ++counts[static_cast<std::size_t>(p * n + order.at(by_seed ? 0 : i, p))];
        }
      }

      const double expected = static_cast<double>(draws) / static_cast<double>(n);
      double chi_square = 0;
      for (const double count : counts) {
        chi_square += (count - expected) * (count - expected) / expected;
      }
      // Rows and columns each sum to `draws`.
      const auto degrees = static_cast<double>((n - 1) * (n - 1));
      // With one degree of freedom the distribution has a longer tail than the normal one.
      const double limit = n == 2 ? 18 : 5;
      BOOST_TEST(deviations(chi_square, degrees) < limit,
                 "n = " << n << " by_seed = " << by_seed << " chi-square " << chi_square);
    }
  }
}

// Samples that are adjacent in one epoch must not be adjacent in the next. Rank correlations of two
// epochs, and of adjacent positions, have the standard deviation 1/sqrt(n).
BOOST_AUTO_TEST_CASE(epochs_seeds_and_neighbours_are_uncorrelated) {
  constexpr std::int64_t n = 10'007;
  const auto correlation = [](const auto& first, const auto& second) {
    constexpr double mean = (n - 1) / 2.0;
    constexpr double variance = (static_cast<double>(n) * n - 1) / 12.0;
    double sum = 0;
    for (std::int64_t p = 0; p < n; ++p) {
      sum += (static_cast<double>(first(p)) - mean) * (static_cast<double>(second(p)) - mean);
    }
    return sum / n / variance;
  };
  const SampleOrder order(n, 3);
  const SampleOrder other_seed(n, 4);
  const double limit = 5 / std::sqrt(static_cast<double>(n));

  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto now = [&](std::int64_t p) { return order.at(epoch, p); };
    const auto next = [&](std::int64_t p) { return order.at(epoch + 1, p); };
    const auto neighbour = [&](std::int64_t p) { return order.at(epoch, (p + 1) % n); };
    const auto seed = [&](std::int64_t p) { return other_seed.at(epoch, p); };
    const auto same = [](std::int64_t p) { return p; };
    BOOST_TEST(std::abs(correlation(now, next)) < limit);
    BOOST_TEST(std::abs(correlation(now, neighbour)) < limit);
    BOOST_TEST(std::abs(correlation(now, seed)) < limit);
    BOOST_TEST(std::abs(correlation(now, same)) < limit);
  }
}

// Each part of an epoch should contain the classes in proportion. Samples sorted by class are the
// worst case.
BOOST_AUTO_TEST_CASE(a_batch_of_sorted_samples_mixes_the_classes) {
  constexpr std::int64_t n = 50'000;
  constexpr std::int64_t batch = 1000;
  const SampleOrder order(n, 9);
  double chi_square = 0;

  for (std::int64_t begin = 0; begin < n; begin += batch) {
    std::vector<double> classes(10);
    for (std::int64_t p = begin; p < begin + batch; ++p) {
      ++classes[static_cast<std::size_t>(order.at(0, p) / (n / 10))];
    }
    for (const double count : classes) chi_square += (count - 100) * (count - 100) / 100;
  }

  // Degrees of freedom: 49 batches times 9 classes; sampling without replacement scales them by n /
  // (n - 1).
  BOOST_TEST(std::abs(deviations(chi_square, 49 * 9)) < 5);
}

// The order must not change, because checkpoints rely on it: a run resumes only with the same
// order.
BOOST_AUTO_TEST_CASE(the_order_is_pinned) {
  const SampleOrder order(1000, 1234);

  const std::vector<std::int64_t> found{order.at(0, 0), order.at(0, 1), order.at(5, 999)};

  const std::vector<std::int64_t> expected{578, 488, 825};
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}
