#include "lockstep/comm/rank_groups.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep;
using Ranks = std::vector<int>;

BOOST_AUTO_TEST_CASE(groups_are_consecutive_ranks_and_replicas_have_equal_positions) {
  const RankGroups groups = rank_groups(4, 6, 3);

  BOOST_TEST((groups.group == Ranks{3, 4, 5}));
  BOOST_TEST((groups.replicas == Ranks{1, 4}));
}

BOOST_AUTO_TEST_CASE(groups_and_replicas_partition_the_job) {
  for (const int ranks : {1, 4, 12}) {
    for (int size = 1; size <= ranks; ++size) {
      if (ranks % size != 0) continue;
      for (int rank = 0; rank < ranks; ++rank) {
        const RankGroups mine = rank_groups(rank, ranks, size);
        BOOST_TEST(mine.group.size() * mine.replicas.size() == static_cast<std::size_t>(ranks));
        for (const int other : mine.group) {
          BOOST_TEST((rank_groups(other, ranks, size).group == mine.group));
        }
        for (const int other : mine.replicas) {
          BOOST_TEST((rank_groups(other, ranks, size).replicas == mine.replicas));
        }
      }
    }
  }
}
