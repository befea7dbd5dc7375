#define BOOST_TEST_MODULE link
#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/tree.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

using namespace lockstep;
using namespace lockstep::watch;
using namespace std::chrono_literals;
using State = RankReport::State;

namespace {

std::pair<Link, Link> connected() {
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  return {Link(Descriptor(ends[0])), Link(Descriptor(ends[1]))};
}

RankReport running(int rank) {
  RankReport report;
  report.rank = rank;
  report.state = State::running;
  return report;
}

/// Trees of three ranks in a row, in one process: 0 above 1 above 2.
class Row final {
 public:
  explicit Row(std::uint64_t job_of_last = 7) {
    std::array<std::optional<Listener>, 3> listeners;
    std::array<Endpoint, 3> endpoints;
    for (std::size_t i = 0; i < 2; ++i) {
      listeners[i].emplace();
      endpoints[i] = {.addresses = {"127.0.0.1"}, .port = listeners[i]->port()};
    }
    for (int rank = 0; rank < 3; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      trees.push_back(
          std::make_unique<Tree>(TreeOptions{.rank = rank,
                                             .size = 3,
                                             .fan_out = 1,
                                             .job = rank == 2 ? job_of_last : 7,
                                             .parent = rank > 0 ? endpoints[i - 1] : Endpoint{}},
                                 std::move(listeners[i])));
    }
  }
  /// Some rounds of talk; the events of each rank are kept.
  void talk(int rounds = 6) {
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t rank = 0; rank < trees.size(); ++rank) {
        if (!trees[rank]) continue;
        trees[rank]->publish(running(static_cast<int>(rank)), 0);
        for (auto& event : trees[rank]->exchange(wake.get(), 10ms, 0)) {
          events[rank].push_back(std::move(event));
        }
      }
    }
  }
  [[nodiscard]] State state(std::size_t of, std::size_t seen_by) const {
    return trees[seen_by]->reports(0)[of].state;
  }
  std::vector<std::unique_ptr<Tree>> trees;
  std::array<std::vector<Tree::Event>, 3> events;
  Descriptor wake{::eventfd(0, EFD_CLOEXEC)};
};

/// Each waits for 100 ms, where nothing comes.
int exchanges_in_300ms(Tree& tree, const Descriptor& wake) {
  int count = 0;
  for (const auto end = std::chrono::steady_clock::now() + 300ms;
       std::chrono::steady_clock::now() < end; ++count) {
    static_cast<void>(tree.exchange(wake.get(), 100ms, 0));
  }
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(messages_of_any_size_arrive_whole_and_in_order) {
  auto [left, right] = connected();
  const std::vector<std::string> sent{"", "a", std::string(300000, 'x'), "end"};
  for (const std::string& text : sent) left.send(MessageKind::loss, text);

  std::vector<std::string> received;
  for (int i = 0; i < 1000 && received.size() < sent.size(); ++i) {
    left.flush();
    for (const Message& message : right.receive()) received.push_back(message.payload);
  }

  BOOST_TEST((received == sent));
  BOOST_TEST(right.valid());
}

BOOST_AUTO_TEST_CASE(what_was_sent_before_the_end_is_still_received) {
  auto [left, right] = connected();
  left.send(MessageKind::goodbye);
  left.close();

  const auto messages = right.receive();

  BOOST_TEST(messages.size() == 1U);
  BOOST_TEST(!right.valid());
}

BOOST_AUTO_TEST_CASE(a_message_too_large_to_be_one_ends_the_connection) {
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
  Link link{Descriptor(ends[0])};
  const std::string noise(64, '\xff');
  BOOST_REQUIRE(::write(ends[1], noise.data(), noise.size()) == 64);

  BOOST_TEST(link.receive().empty());

  BOOST_TEST(!link.valid());
  ::close(ends[1]);
}

BOOST_AUTO_TEST_CASE(payloads_that_are_no_reports_are_none) {
  BOOST_TEST(reports_in("").empty());
  BOOST_TEST(reports_in(std::string(sizeof(RankReport) + 1, 'x')).empty());
  const std::vector<RankReport> two{running(3), running(4)};
  BOOST_TEST(reports_in(std::string(bytes_of(two))).at(1).rank == 4);
}

BOOST_AUTO_TEST_CASE(reports_reach_the_first_rank_through_those_between) {
  Row row;

  row.talk();

  BOOST_TEST((row.state(1, 0) == State::running));
  BOOST_TEST((row.state(2, 0) == State::running));
  BOOST_TEST((row.state(0, 1) == State::running));
  BOOST_TEST((row.state(2, 1) == State::running));
  BOOST_TEST((row.state(0, 2) == State::unheard));
}

BOOST_AUTO_TEST_CASE(a_broken_connection_is_a_loss_and_a_goodbye_is_none) {
  Row row;
  row.talk();
  row.trees[2]->say_goodbye();
  row.trees[2].reset();
  row.talk();
  BOOST_TEST((row.state(2, 0) == State::left));
  BOOST_TEST(row.events[1].empty());

  row.trees[0].reset();
  row.talk();

  BOOST_REQUIRE(row.events[1].size() == 1U);
  BOOST_TEST((row.events[1][0].kind == Tree::Event::Kind::lost));
  BOOST_TEST(row.events[1][0].rank == 0);
}

BOOST_AUTO_TEST_CASE(a_rank_above_that_never_answers_is_given_up_and_wakes_nobody) {
  std::optional<Listener> silent(std::in_place);
  const Descriptor wake(::eventfd(0, EFD_CLOEXEC));
  Tree tree({.rank = 1,
             .size = 2,
             .fan_out = 1,
             .job = 7,
             .parent = {.addresses = {"127.0.0.1"}, .port = silent->port()},
             .connect_limit = 100ms},
            std::nullopt);
  std::vector<Tree::Event> events;
  for (int i = 0; i < 1000 && events.empty(); ++i) events = tree.exchange(wake.get(), 10ms, 0);

  BOOST_REQUIRE(events.size() == 1U);
  BOOST_TEST((events[0].kind == Tree::Event::Kind::unreachable));
  BOOST_TEST(events[0].rank == 0);
  silent.reset();  // the connection, which nobody looks at any more, breaks
  BOOST_TEST(exchanges_in_300ms(tree, wake) < 50);
}

BOOST_AUTO_TEST_CASE(a_rank_above_that_has_left_wakes_nobody) {
  Row row;
  row.talk();
  row.trees[2].reset();
  row.trees[0]->say_goodbye();
  for (int i = 0; i < 1000 && row.state(0, 1) != State::left; ++i) {
    static_cast<void>(row.trees[1]->exchange(row.wake.get(), 10ms, 0));
  }
  BOOST_TEST((row.state(0, 1) == State::left));
  row.trees[0].reset();

  BOOST_TEST(exchanges_in_300ms(*row.trees[1], row.wake) < 50);
}

BOOST_AUTO_TEST_CASE(who_is_of_another_job_is_not_let_in) {
  Row row(8);

  row.talk();

  BOOST_TEST((row.state(2, 1) == State::unheard));
  BOOST_TEST((row.state(1, 0) == State::running));
}

BOOST_AUTO_TEST_CASE(time_in_which_the_process_stood_still_does_not_count) {
  WatchClock clock(0.05);
  std::this_thread::sleep_for(400ms);

  clock.look();

  BOOST_TEST(clock.now() <= 0.05);
}
