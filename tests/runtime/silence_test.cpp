// Nodes that lose power, and short stalls of the network. A socket filter drops what arrives.
#include <boost/test/unit_test.hpp>

#include "watch_fixture.hpp"

#include <linux/filter.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace lockstep::watch;
using namespace lockstep::test;
using State = RankReport::State;
using Kind = Tree::Event::Kind;

namespace {

constexpr SilenceLimits limits{.connection = 1s, .host = 1s};

/// While it exists, this process's sockets receive nothing, and its listeners answer nobody.
class Outage final {
 public:
  Outage() {
    sock_filter drop_all{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
    const sock_fprog program{.len = 1, .filter = &drop_all};
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int descriptor = std::stoi(entry.path().filename());
      int type = 0;
      socklen_t size = sizeof type;
      if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0) continue;
      BOOST_REQUIRE(
          ::setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0);
      cut_.push_back(descriptor);
    }
  }
  ~Outage() {
    const int ignored = 0;
    for (const int each : cut_) {
      ::setsockopt(each, SOL_SOCKET, SO_DETACH_FILTER, &ignored, sizeof ignored);
    }
  }
  Outage(const Outage&) = delete;
  Outage& operator=(const Outage&) = delete;

 private:
  std::vector<int> cut_;
};

Row row_with(const SilenceLimits& silence) {
  return Row({7}, {"127.0.0.1"}, silence);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_node_that_loses_power_is_lost_at_the_limit) {
  Row row = row_with(limits);
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));
  const auto begin = std::chrono::steady_clock::now();
  const Outage outage;

  BOOST_TEST(row.talk_until(
      [&] { return row.saw(0, Kind::lost_silently) && row.saw(1, Kind::lost_silently); }));

  BOOST_TEST(seconds_since(begin) > 1.5);
  BOOST_TEST(seconds_since(begin) < 15);
  BOOST_TEST((row.state(1, 0) == State::lost));
}

BOOST_AUTO_TEST_CASE(a_short_stall_of_the_network_breaks_no_connection) {
  Row row = row_with(limits);
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));

  std::optional<Outage> outage(std::in_place);
  row.talk_for(500ms);
  outage.reset();
  row.talk_for(1s);

  BOOST_TEST(row.all_have_met());
  for (const auto& events : row.events) BOOST_TEST(events.empty());
}

BOOST_AUTO_TEST_CASE(a_longer_stall_breaks_connections_and_loses_no_rank) {
  // The first packet after the stall may be the second attempt to connect, a second later.
  Row row = row_with({.connection = 1s, .host = 5s});
  BOOST_REQUIRE(row.talk_until([&] { return row.all_have_met(); }));

  std::optional<Outage> outage(std::in_place);
  BOOST_TEST(row.talk_until([&] { return !row.all_have_met(); }));
  outage.reset();

  BOOST_TEST(row.talk_until([&] { return row.all_have_met(); }));
  for (const std::size_t rank : {0U, 1U, 2U}) {
    BOOST_TEST(!row.saw(rank, Kind::lost));
    BOOST_TEST(!row.saw(rank, Kind::lost_silently));
  }
}

BOOST_AUTO_TEST_CASE(a_node_that_loses_power_while_its_process_is_stopped_is_lost) {
  // Accepted by the system only: the probe's connection is idle.
  const Listener stopped(loopback());
  Probe probe(*loopback(stopped.port()), std::nullopt, 0, limits);
  const auto begin = std::chrono::steady_clock::now();
  const auto look_until = [&](Probe::Finding wanted) {
    while (seconds_since(begin) < 20) {
      if (probe.step(seconds_since(begin)) == wanted) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  };
  BOOST_REQUIRE(look_until(Probe::Finding::alive));

  const Outage outage;

  BOOST_TEST(look_until(Probe::Finding::silent));
}
