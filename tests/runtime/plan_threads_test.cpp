#include <boost/test/unit_test.hpp>

#include "lockstep/runtime/thread_binding.hpp"

#include <numeric>
#include <set>

using namespace lockstep;

namespace {

std::vector<int> cores(int first, int count) {
  std::vector<int> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

/// The same mask for every rank.
std::vector<std::vector<int>> shared(int ranks, const std::vector<int>& mask) {
  return std::vector<std::vector<int>>(static_cast<std::size_t>(ranks), mask);
}

ThreadBinding plan(std::vector<std::vector<int>> masks, int local_rank, int requested = 0,
                   int node_cores = 64) {
  return plan_threads({.masks = std::move(masks),
                       .local_rank = local_rank,
                       .requested = requested,
                       .node_cores = node_cores});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_single_rank_uses_its_whole_mask) {
  const ThreadBinding binding = plan({cores(4, 8)}, 0);

  BOOST_TEST(binding.threads == 8);
  BOOST_TEST((binding.cores == cores(4, 8)));
  BOOST_TEST((binding.allowed == cores(4, 8)));
  BOOST_TEST(binding.text == "8 threads on cores 4-11");
  BOOST_TEST(!binding.warning.has_value());
}

BOOST_AUTO_TEST_CASE(ranks_bound_by_the_launcher_keep_their_own_cores) {
  const std::vector<std::vector<int>> masks{cores(0, 2), cores(2, 2), {8, 12}};

  BOOST_TEST((plan(masks, 0).cores == std::vector<int>{0, 1}));
  BOOST_TEST((plan(masks, 1).cores == std::vector<int>{2, 3}));
  BOOST_TEST((plan(masks, 2).cores == std::vector<int>{8, 12}));
  BOOST_TEST(plan(masks, 2).text == "2 threads on cores 8,12");
}

BOOST_AUTO_TEST_CASE(ranks_that_share_a_mask_divide_it) {
  const auto masks = shared(3, cores(0, 10));

  BOOST_TEST((plan(masks, 0).cores == cores(0, 3)));
  BOOST_TEST((plan(masks, 1).cores == cores(3, 3)));
  BOOST_TEST((plan(masks, 2).cores == cores(6, 3)));
  BOOST_TEST((plan(masks, 2).allowed == cores(0, 10)));
  BOOST_TEST(plan(masks, 2).share == 3);
}

BOOST_AUTO_TEST_CASE(sockets_are_divided_among_their_own_ranks) {
  const std::vector<std::vector<int>> masks{cores(0, 4), cores(4, 4), cores(0, 4), cores(4, 4)};

  BOOST_TEST((plan(masks, 0).cores == cores(0, 2)));
  BOOST_TEST((plan(masks, 1).cores == cores(4, 2)));
  BOOST_TEST((plan(masks, 2).cores == cores(2, 2)));
  BOOST_TEST((plan(masks, 3).cores == cores(6, 2)));
}

BOOST_AUTO_TEST_CASE(no_two_ranks_are_pinned_to_one_core) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int size = 1; size <= 16; ++size) {
      std::multiset<int> pinned;
      for (int rank = 0; rank < ranks; ++rank) {
        const ThreadBinding binding = plan(shared(ranks, cores(0, size)), rank);
        BOOST_TEST(binding.threads == std::max(1, size / ranks));
        BOOST_TEST((binding.cores.empty() ||
                    binding.cores.size() == static_cast<std::size_t>(binding.threads)));
        BOOST_TEST(binding.cores.empty() == (ranks > size));
        pinned.insert(binding.cores.begin(), binding.cores.end());
      }
      for (const int core : pinned) BOOST_TEST(pinned.count(core) == 1U);
    }
  }
}

BOOST_AUTO_TEST_CASE(more_ranks_than_cores_run_one_thread_each_unpinned) {
  const ThreadBinding binding = plan(shared(4, cores(0, 2)), 3);

  BOOST_TEST(binding.threads == 1);
  BOOST_TEST(binding.cores.empty());
  BOOST_TEST((binding.allowed == cores(0, 2)));
  BOOST_TEST(binding.text == "1 thread, not pinned (4 ranks share cores 0-1)");
}

BOOST_AUTO_TEST_CASE(masks_that_overlap_in_part_are_not_pinned) {
  const std::vector<std::vector<int>> masks{cores(0, 8), cores(0, 4)};

  BOOST_TEST(plan(masks, 0).threads == 4);
  BOOST_TEST(plan(masks, 1).threads == 2);
  BOOST_TEST(plan(masks, 0).cores.empty());
  BOOST_TEST(plan(masks, 1).cores.empty());
}

BOOST_AUTO_TEST_CASE(fewer_requested_threads_use_the_first_cores_of_the_share) {
  const ThreadBinding binding = plan(shared(2, cores(0, 8)), 1, 3);

  BOOST_TEST(binding.threads == 3);
  BOOST_TEST((binding.cores == cores(4, 3)));
}

BOOST_AUTO_TEST_CASE(fewer_threads_than_an_undivided_nodes_cores_are_not_pinned) {
  const ThreadBinding binding = plan({cores(0, 8)}, 0, 3, 8);

  BOOST_TEST(binding.threads == 3);
  BOOST_TEST(binding.cores.empty());
  BOOST_TEST(binding.text == "3 threads, not pinned, on cores 0-7");
  BOOST_TEST(plan(shared(2, cores(0, 8)), 1, 3, 8).cores.empty());
  // All of them are pinned.
  BOOST_TEST((plan(shared(2, cores(0, 8)), 1, 0, 8).cores == cores(4, 4)));
}

BOOST_AUTO_TEST_CASE(more_requested_threads_than_cores_are_kept_but_not_pinned) {
  const ThreadBinding binding = plan(shared(2, cores(0, 8)), 1, 5);

  BOOST_TEST(binding.threads == 5);
  BOOST_TEST(binding.cores.empty());
  BOOST_TEST(binding.text == "5 threads, not pinned (2 ranks share cores 0-7)");
}

BOOST_AUTO_TEST_CASE(one_core_of_a_large_node_gives_a_warning) {
  const ThreadBinding binding = plan({{5}, {6}}, 1, 0, 64);

  BOOST_TEST(binding.threads == 1);
  BOOST_TEST((binding.cores == std::vector<int>{6}));
  BOOST_TEST_REQUIRE(binding.warning.has_value());
  for (const char* part : {"one core of the node's 64", "--bind-to none", "--cpus-per-task=32"}) {
    BOOST_TEST(binding.warning->find(part) != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(one_core_that_is_requested_or_a_fair_share_gives_no_warning) {
  BOOST_TEST(!plan({{5}}, 0, 1, 64).warning.has_value());
  BOOST_TEST(!plan({{0}}, 0, 0, 1).warning.has_value());
  BOOST_TEST(!plan({{0}, {1}, {2}}, 2, 0, 4).warning.has_value());
}

BOOST_AUTO_TEST_CASE(an_unknown_mask_gives_the_requested_threads) {
  BOOST_TEST(plan({{}}, 0).threads == 1);
  BOOST_TEST(plan({{}, cores(0, 4)}, 0, 3).threads == 3);
  BOOST_TEST(plan({{}}, 0).cores.empty());
  BOOST_TEST(plan({{}}, 0).allowed.empty());
}
