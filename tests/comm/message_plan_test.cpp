#include <boost/test/unit_test.hpp>

#include "../../src/comm/messages/message_plan.hpp"

#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

/// What one rank of a simulated job has done so far, with integers, so that every order of
/// additions gives the same sum.
struct SimulatedRank {
  MessagePlan plan;
  std::vector<std::int64_t> own;      ///< this rank's values of all blocks
  std::vector<std::int64_t> partial;  ///< sums of several ranks, at the same offsets
  std::size_t sent = 0;
  std::size_t received = 0;
};

using Values = std::vector<std::int64_t>;

std::int64_t value_of(int rank, std::size_t i) {
  return static_cast<std::int64_t>(i * 7 + static_cast<std::size_t>(rank) * 1000003);
}

/// Runs the plans of all ranks, which take turns in random order, and delivers messages between
/// each pair of ranks in order. Returns each rank's buffer after that.
std::vector<Values> simulate(MessageShape shape, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(shape.ranks));
  const bool in_place = shape.gathers;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    SimulatedRank& each = ranks[static_cast<std::size_t>(rank)];
    shape.rank = rank;
    each.plan = plan_messages(shape);
    for (std::size_t i = 0; i < shape.total; ++i) {
      const bool is_own = i / shape.count == static_cast<std::size_t>(rank);
      each.own.push_back(shape.reduces || is_own ? value_of(rank, i) : -1);
    }
    each.partial.assign(shape.total, -1);
  }
  std::map<std::pair<int, int>, std::deque<Values>> links;  // by sender and receiver
  for (std::size_t idle = 0; idle < 1000; ++idle) {
    const int rank = static_cast<int>(random() % ranks.size());
    SimulatedRank& me = ranks[static_cast<std::size_t>(rank)];
    Values& sums = in_place ? me.own : me.partial;
    if (random() % 2 == 0 && me.sent < me.plan.sends.size()) {
      const Message& message = me.plan.sends[me.sent];
      if (me.received < message.after_receives) continue;
      const Values& from = message.is_partial_sum ? sums : me.own;
      links[{rank, message.peer}].emplace_back(
          from.begin() + static_cast<std::ptrdiff_t>(message.begin),
          from.begin() + static_cast<std::ptrdiff_t>(message.begin + message.count));
      ++me.sent;
      idle = 0;
    } else if (me.received < me.plan.receives.size()) {
      const Message& message = me.plan.receives[me.received];
      auto& link = links[{message.peer, rank}];
      if (link.empty() || me.sent < message.after_sends) continue;
      BOOST_TEST_REQUIRE(link.front().size() == message.count);
      for (std::size_t i = 0; i < message.count; ++i) {
        const std::size_t at = message.begin + i;
        const std::int64_t before = message.is_partial_sum ? sums[at] : me.own[at];
        sums[at] = message.reduces ? before + link.front()[i] : link.front()[i];
      }
      link.pop_front();
      ++me.received;
      idle = 0;
    }
  }
  std::vector<Values> results;
  for (const SimulatedRank& rank : ranks) {
    BOOST_TEST(rank.sent == rank.plan.sends.size());
    BOOST_TEST(rank.received == rank.plan.receives.size());
    results.push_back(in_place ? rank.own : rank.partial);
  }
  for (const auto& [ranks_of_link, link] : links) BOOST_TEST(link.empty());
  return results;
}

std::int64_t sum_of(int ranks, std::size_t i) {
  std::int64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += value_of(rank, i);
  return sum;
}

/// Visits shapes of 1 to 16 ranks and of some larger odd numbers.
template <typename Visit>
void for_each_shape(bool reduces, bool gathers, Visit&& visit) {
  std::vector<int> sizes{31, 33};
  for (int ranks = 1; ranks <= 16; ++ranks) sizes.push_back(ranks);
  for (const BlockSchedule schedule : {BlockSchedule::halving, BlockSchedule::ring}) {
    for (const int ranks : sizes) {
      for (const std::size_t count : {1UL, 5UL, 12UL}) {
        const MessageShape shape{.schedule = schedule,
                                 .ranks = ranks,
                                 .count = count,
                                 .total = count * static_cast<std::size_t>(ranks),
                                 .piece = 5,
                                 .reduces = reduces,
                                 .gathers = gathers};
        BOOST_TEST_CONTEXT("schedule " << static_cast<int>(schedule) << ", " << ranks
                                       << " ranks, blocks of " << count) {
          visit(shape);
        }
      }
    }
  }
}

std::size_t values_in(const std::vector<Message>& messages) {
  std::size_t values = 0;
  for (const Message& message : messages) values += message.count;
  return values;
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_rank_gets_the_sum_of_its_block) {
  for_each_shape(true, false, [](const MessageShape& shape) {
    const std::vector<Values> results = simulate(shape, 1);
    if (shape.ranks == 1) return;  // nothing moves
    for (std::size_t i = 0; i < shape.total; ++i) {
      BOOST_TEST_REQUIRE(results[i / shape.count][i] == sum_of(shape.ranks, i));
    }
  });
}

BOOST_AUTO_TEST_CASE(every_rank_gets_all_sums) {
  for_each_shape(true, true, [](MessageShape shape) {
    // The last blocks are shorter, or empty.
    for (const std::size_t missing : {0UL, 1UL, shape.count + 2}) {
      if (missing >= shape.total) continue;
      MessageShape shorter = shape;
      shorter.total -= missing;
      for (const Values& result : simulate(shorter, 2)) {
        for (std::size_t i = 0; i < shorter.total; ++i) {
          BOOST_TEST_REQUIRE(result[i] == sum_of(shape.ranks, i));
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(every_rank_gets_the_blocks_of_all) {
  for_each_shape(false, true, [](const MessageShape& shape) {
    for (const Values& result : simulate(shape, 3)) {
      for (std::size_t i = 0; i < shape.total; ++i) {
        BOOST_TEST_REQUIRE(result[i] == value_of(static_cast<int>(i / shape.count), i));
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(no_rank_sends_or_receives_more_than_the_optimum) {
  for (const bool gathers : {false, true}) {
    for_each_shape(true, gathers, [gathers](MessageShape shape) {
      const std::size_t optimum = (shape.total - shape.count) * (gathers ? 2 : 1);
      for (shape.rank = 0; shape.rank < shape.ranks; ++shape.rank) {
        const MessagePlan plan = plan_messages(shape);
        BOOST_TEST(values_in(plan.sends) == optimum);
        BOOST_TEST(values_in(plan.receives) == optimum);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE(halving_takes_the_logarithm_of_the_ranks_in_rounds) {
  for (int ranks = 1; ranks <= 5000; ranks = ranks * 3 / 2 + 1) {
    const auto expected = std::bit_width(static_cast<unsigned>(ranks) - 1);
    for (const int rank : {0, ranks / 2, ranks - 1}) {
      const auto rounds = reduce_scatter_rounds(BlockSchedule::halving, rank, ranks);
      BOOST_TEST(static_cast<int>(rounds.size()) == expected, ranks << " ranks");
    }
    BOOST_TEST(static_cast<int>(reduce_scatter_rounds(BlockSchedule::ring, 0, ranks).size()) ==
               ranks - 1);
  }
}

BOOST_AUTO_TEST_CASE(a_halving_begins_when_one_message_of_the_halving_before_was_added) {
  // 8 ranks, blocks of 16 pieces: rounds of 64, 32 and 16 messages.
  const MessagePlan plan = plan_messages({.schedule = BlockSchedule::halving,
                                          .rank = 0,
                                          .ranks = 8,
                                          .count = 160,
                                          .total = 1280,
                                          .piece = 10,
                                          .reduces = true,
                                          .gathers = true});
  std::size_t round = 0;
  std::vector<std::size_t> needed;
  for (const Message& message : plan.sends) {
    if (message.peer != (needed.empty() ? -1 : static_cast<int>(round))) {
      needed.push_back(message.after_receives);
      round = static_cast<std::size_t>(message.peer);
    }
  }
  // To ranks 4, 2, 1, then back to 7 (-1), 6 (-2), 4 (-4).
  BOOST_TEST(needed == (std::vector<std::size_t>{0, 1, 65, 112, 112, 112}),
             boost::test_tools::per_element());
}
