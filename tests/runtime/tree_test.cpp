#include <boost/test/unit_test.hpp>

#include "watch_fixture.hpp"

#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace lockstep::watch;
using namespace lockstep::test;
using State = RankReport::State;
using Kind = Tree::Event::Kind;

namespace {

/// The descriptors of this process's connections, both ends of each.
std::set<int> connections() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    if (peer_with_port(descriptor, 0)) found.insert(descriptor);
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(reports_reach_rank_0_through_the_ranks_between) {
  Row row;

  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));

  BOOST_TEST((row.state(0, 2) == State::unheard));
}

BOOST_AUTO_TEST_CASE(a_parent_is_reached_on_any_of_its_addresses) {
  Row row({7}, {"127.0.0.2", "127.0.0.3", "127.0.0.1"});

  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));
}

BOOST_AUTO_TEST_CASE(a_reports_age_counts_from_its_arrival) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  WatchClock clock(60);
  while (row.trees[0]->exchange(row.wake.get(), 10ms, clock).empty() && clock.now() < 0.1) {
  }
  clock.look();
  std::thread child([&] {
    std::this_thread::sleep_for(500ms);
    row.trees[1]->publish(running(1), 0);
  });

  static_cast<void>(row.trees[0]->exchange(row.wake.get(), 30s, clock));
  child.join();

  BOOST_TEST(clock.now() > 0.5);
  BOOST_TEST(row.trees[0]->reports(clock.now())[1].silent < 0.4);
}

BOOST_AUTO_TEST_CASE(a_rank_that_ends_is_lost_and_one_that_says_goodbye_is_not) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  row.trees[2]->say_goodbye();
  row.trees[2].reset();
  BOOST_TEST(row.talk_until([&] { return row.state(2, 0) == State::left; }));
  BOOST_TEST(row.events[1].empty());

  row.trees[0].reset();
  BOOST_TEST(row.talk_until([&] { return !row.events[1].empty(); }));

  BOOST_TEST((row.events[1][0].kind == Kind::lost));
  BOOST_TEST(row.events[1][0].rank == 0);
}

BOOST_AUTO_TEST_CASE(the_ranks_below_one_that_leaves_have_left_too) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));

  row.trees[1]->say_goodbye();
  row.trees[1]->drain(200ms);
  row.trees[1].reset();

  BOOST_TEST(row.talk_until([&] { return row.state(1, 0) == State::left; }, 5s));
  BOOST_TEST((row.state(2, 0) == State::left));  // its reports no longer arrive
  BOOST_TEST(row.talk_until([&] { return row.state(1, 2) == State::left; }, 5s));
  BOOST_TEST((row.state(0, 2) == State::unheard));
}

BOOST_AUTO_TEST_CASE(a_child_that_leaves_during_its_handshake_is_not_lost) {
  Row row;
  WatchClock clock(60);
  // The parent has admitted the child, which has not read the answer.
  for (int i = 0; i < 1000 && row.state(1, 0) != State::running; ++i) {
    static_cast<void>(row.trees[1]->exchange(row.wake.get(), 5ms, clock));
    static_cast<void>(row.trees[0]->exchange(row.wake.get(), 5ms, clock));
  }
  BOOST_REQUIRE((row.state(1, 0) == State::running));

  row.trees[1]->say_goodbye();
  row.trees[1]->drain(200ms);
  row.trees[1].reset();

  BOOST_TEST(row.talk_until([&] { return row.state(1, 0) == State::left; }, 5s));
  BOOST_TEST(!row.saw(0, Kind::lost));
}

BOOST_AUTO_TEST_CASE(a_child_that_ends_is_lost_at_once) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  row.trees[2].reset();

  BOOST_TEST(row.talk_until([&] { return row.saw(1, Kind::lost); }));

  BOOST_TEST(!row.saw(1, Kind::unreachable));
  BOOST_TEST(row.talk_until([&] { return row.state(2, 0) == State::lost; }));
}

BOOST_AUTO_TEST_CASE(a_broken_connection_is_replaced_and_no_rank_is_lost) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  const std::set<int> old = connections();
  BOOST_TEST(old.size() == 4U);
  for (const int each : old) ::shutdown(each, SHUT_RDWR);
  row.talk_once();
  BOOST_TEST(!row.all_have_met());

  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));

  for (const std::size_t rank : {0U, 1U, 2U}) BOOST_TEST(!row.saw(rank, Kind::lost));
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_reconnect_is_unreachable_and_not_lost) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  // Simulates a stopped process, whose kernel still accepts connections.
  auto stopped = std::move(row.trees[2]);
  for (const int each : connections()) ::shutdown(each, SHUT_RDWR);

  BOOST_TEST(row.talk_until([&] { return row.saw(1, Kind::unreachable); }));
  row.talk_for(500ms);
  BOOST_TEST((row.state(2, 1) == State::unreachable));
  BOOST_TEST((row.state(2, 0) == State::unreachable));
  BOOST_TEST(!row.saw(1, Kind::lost));

  row.trees[2] = std::move(stopped);
  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));
  BOOST_TEST(row.saw(1, Kind::reachable));
}

BOOST_AUTO_TEST_CASE(a_parent_that_is_stopped_is_unreachable_and_not_lost) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  auto stopped = std::move(row.trees[0]);
  for (const int each : connections()) ::shutdown(each, SHUT_RDWR);

  BOOST_TEST(row.talk_until([&] { return row.saw(1, Kind::unreachable); }));
  row.talk_for(500ms);
  BOOST_TEST((row.state(0, 1) == State::unreachable));
  BOOST_TEST(!row.saw(1, Kind::lost));
  BOOST_TEST(exchanges_in(300ms, *row.trees[1], row.wake) < 50);

  row.trees[0] = std::move(stopped);
  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));
  BOOST_TEST(row.saw(1, Kind::reachable));
}

BOOST_AUTO_TEST_CASE(a_loss_is_forgotten_when_the_rank_connects_again) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  row.trees[2].reset();
  BOOST_REQUIRE(row.talk_until([&] { return row.saw(1, Kind::lost); }));

  row.begin(2, Listener(loopback()));

  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));
  BOOST_TEST(row.saw(1, Kind::reachable));
}

BOOST_AUTO_TEST_CASE(a_probe_distinguishes_a_stopped_process_from_one_that_ended) {
  std::optional<Listener> listener(loopback());  // does not call accept, like a stopped process
  Probe probe(*loopback(listener->port()), std::nullopt, 0);
  Probe::Finding finding = Probe::Finding::unknown;
  const auto look_until = [&](Probe::Finding wanted) {
    for (int i = 0; i < 3000 && finding != wanted; ++i) {
      finding = probe.step(i);
      std::this_thread::sleep_for(10ms);
    }
    return finding == wanted;
  };

  BOOST_TEST(look_until(Probe::Finding::alive));
  BOOST_TEST((probe.step(1000) == Probe::Finding::alive));
  listener.reset();
  BOOST_TEST(look_until(Probe::Finding::gone));
}

BOOST_AUTO_TEST_CASE(a_host_that_does_not_answer_is_given_up_at_the_limit) {
  // The queue is full, so the kernel drops further connections.
  const Descriptor full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto address = *loopback();
  auto* name = reinterpret_cast<sockaddr*>(&address.storage);
  BOOST_REQUIRE(::bind(full.get(), name, address.size) == 0);
  BOOST_REQUIRE(::listen(full.get(), 0) == 0);
  BOOST_REQUIRE(::getsockname(full.get(), name, &address.size) == 0);
  std::vector<Descriptor> queued;
  for (int i = 0; i < 4; ++i) {
    queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::connect(queued.back().get(), name, address.size);
  }
  Probe probe(address, std::nullopt, 0);

  BOOST_TEST((probe.step(0) == Probe::Finding::unknown));
  BOOST_TEST((probe.step(SilenceLimits{}.host_seconds() - 1) == Probe::Finding::unknown));
  BOOST_TEST((probe.step(SilenceLimits{}.host_seconds() + 1) == Probe::Finding::silent));
}

BOOST_AUTO_TEST_CASE(a_parent_that_never_answers_is_given_up_and_causes_no_wake_ups) {
  std::optional<Listener> silent(loopback());
  const Descriptor wake(::eventfd(0, EFD_CLOEXEC));
  Tree tree({.rank = 1,
             .size = 2,
             .parents = {-1, 0},
             .secret = {7},
             .parent = {.addresses = {"127.0.0.1"}, .port = silent->port()},
             .connect_limit = 100ms},
            Listener(loopback()));
  std::vector<Tree::Event> events;
  WatchClock clock(60);
  for (int i = 0; i < 1000 && events.empty(); ++i) {
    events = tree.exchange(wake.get(), 10ms, clock);
  }

  BOOST_REQUIRE(events.size() == 1U);
  BOOST_TEST((events[0].kind == Kind::never_connected));
  BOOST_TEST(events[0].rank == 0);
  silent.reset();  // breaks the connection that the tree no longer polls
  BOOST_TEST(exchanges_in(300ms, tree, wake) < 50);
}

BOOST_AUTO_TEST_CASE(a_parent_that_has_left_causes_no_wake_ups) {
  Row row;
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  row.trees[2].reset();
  row.trees[0]->say_goodbye();
  BOOST_TEST(row.talk_until([&] { return row.state(0, 1) == State::left; }));
  row.trees[0].reset();

  BOOST_TEST(exchanges_in(300ms, *row.trees[1], row.wake) < 50);
}

BOOST_AUTO_TEST_CASE(a_rank_of_another_job_is_rejected) {
  Row row({8});

  BOOST_TEST(row.talk_until([&] { return row.state(1, 0) == State::running; }));
  row.talk_for(300ms);

  BOOST_TEST((row.state(2, 1) == State::unheard));
  BOOST_TEST((row.state(1, 2) == State::unheard));
}

BOOST_AUTO_TEST_CASE(time_during_which_the_process_is_stopped_does_not_count) {
  WatchClock clock(0.05);
  std::this_thread::sleep_for(400ms);

  clock.look();

  BOOST_TEST(clock.now() <= 0.05);
}
