#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/watchdog.hpp"
#include "lockstep/runtime/watched_communicator.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

Communicator* world = nullptr;

std::string name_of(int rank) {
  return "rank " + std::to_string(rank) + " (node7)";
}
std::vector<std::string> names() {
  std::vector<std::string> all(static_cast<std::size_t>(world->size()));
  for (std::size_t rank = 0; rank < all.size(); ++rank) all[rank] = name_of(static_cast<int>(rank));
  return all;
}

struct Planted final : std::runtime_error {
  Planted() : std::runtime_error("planted") {}
};

/// A watchdog that records its log lines and the end of the job instead of ending it.
class Rig final {
 public:
  explicit Rig(std::chrono::duration<double> limit, int fan_out = 64, std::string interface = {})
      : grid_(make_process_grid()),
        watchdog_(std::make_unique<Watchdog>(
            *world, grid_, board,
            WatchdogOptions{.limit = limit,
                            .names = names(),
                            .cores = {},
                            .fan_out = fan_out,
                            .loss_limit = 600ms,
                            .end_job = [this](ExitStatus) { ended = true; },
                            .interface = std::move(interface),
                            .on_tick =
                                [this] {
                                  if (fails) throw Planted();
                                }})) {
    watchdog_->log_to([this](const std::string& line) {
      {
        const std::lock_guard lock(mutex_);
        lines_ += line + "\n";
      }
      while (held_) std::this_thread::sleep_for(10ms);
    });
  }
  PhaseBoard board;
  std::atomic<bool> ended = false;
  std::atomic<bool> fails = false;  ///< makes the watchdog's thread throw

  [[nodiscard]] std::string lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  [[nodiscard]] bool has_logged(const std::string& part) {
    return lines().find(part) != std::string::npos;
  }
  /// Waits until the log contains `part`; false after 20 s.
  [[nodiscard]] bool eventually_logs(const std::string& part) {
    return eventually([&] { return has_logged(part); });
  }
  [[nodiscard]] bool eventually_ends() {
    return eventually([this] { return ended.load(); });
  }
  /// Leaves the first step, so that the longer limit of start-up no longer applies.
  void begin_second_step() {
    board.begin_step(1);
    board.begin_step(2);
  }
  void move_for(std::chrono::milliseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time;
         std::chrono::steady_clock::now() < end;) {
      board.move();
      std::this_thread::sleep_for(10ms);
    }
  }
  Watchdog& watchdog() { return *watchdog_; }
  /// Blocks the log, like a file system that hangs, until let_go().
  void hold_log() { held_ = true; }
  void let_go() { held_ = false; }

 private:
  template <typename Condition>
  [[nodiscard]] static bool eventually(Condition&& condition) {
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         std::chrono::steady_clock::now() < end;) {
      if (condition()) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }

  ProcessGrid grid_;
  std::mutex mutex_;
  std::string lines_;
  std::atomic<bool> held_ = false;
  std::unique_ptr<Watchdog> watchdog_;
};

int last_rank() {
  return world->size() - 1;
}

/// Descriptors of this process that are TCP connections.
std::set<int> tcp_connections() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) found.insert(descriptor);
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_make_progress_are_not_reported) {
  Rig rig(1s);
  rig.begin_second_step();

  rig.move_for(1500ms);
  world->barrier();

  BOOST_TEST(rig.lines().empty());
  BOOST_TEST(!rig.ended);
}

BOOST_AUTO_TEST_CASE(progress_of_one_rank_counts_for_all) {
  Rig rig(1s);
  rig.begin_second_step();

  if (world->rank() == last_rank()) rig.move_for(1500ms);
  world->barrier();

  BOOST_TEST(rig.lines().empty());
}

BOOST_AUTO_TEST_CASE(a_late_rank_is_named_on_all_ranks_with_any_fan_out) {
  for (const int fan_out : {1, 2}) {
    // In a chain, a rank that gets no core for three quarters of the limit is silent, not late;
    // hence 5 s.
    Rig rig(5s, fan_out);
    rig.begin_second_step();
    rig.board.enter(world->rank() == last_rank() ? Phase::data : Phase::communication);
    if (world->rank() != last_rank()) {
      rig.board.begin_request_wait(CollectiveKind::started_all_reduce, 1);
    }

    BOOST_TEST(rig.eventually_logs(name_of(last_rank()) + " has been late for"));
    BOOST_TEST(rig.has_logged("in data of step 2"));
    if (world->size() > 1)
      BOOST_TEST(rig.has_logged("the all-reduce of bucket 1, in communication"));
    // Rank 0, which judges, ends the job; the other ranks wait for that.
    if (world->rank() == 0) BOOST_TEST(rig.eventually_ends());
    world->barrier();
    BOOST_TEST(rig.ended == (world->rank() == 0));
  }
}

BOOST_AUTO_TEST_CASE(names_given_later_are_used) {
  Rig rig(1s);
  std::vector<std::string> names(static_cast<std::size_t>(world->size()));
  for (std::size_t rank = 0; rank < names.size(); ++rank) names[rank] = fmt::format("GPU {}", rank);
  rig.watchdog().name_ranks(names);
  rig.begin_second_step();
  rig.board.enter(Phase::update);

  BOOST_TEST(rig.eventually_logs("GPU 0 has been late"));
  world->barrier();
}

BOOST_AUTO_TEST_CASE(a_log_that_hangs_prevents_neither_the_report_nor_the_end) {
  Rig rig(1s, 2);
  rig.begin_second_step();
  rig.board.enter(Phase::update);
  rig.hold_log();

  BOOST_TEST(rig.eventually_logs(name_of(0) + " has been late"));
  if (world->rank() == 0) BOOST_TEST(rig.eventually_ends());
  world->barrier();
  rig.let_go();
}

BOOST_AUTO_TEST_CASE(a_rank_that_hangs_after_the_others_have_left_names_itself) {
  for (const int fan_out : {1, 64}) {
    auto rig = std::make_unique<Rig>(1s, fan_out);
    rig->begin_second_step();
    rig->move_for(1500ms);  // lets the ranks' watchdogs connect
    world->barrier();
    rig->board.enter(Phase::end);
    if (world->rank() != last_rank()) {
      rig.reset();
    } else {
      BOOST_TEST(rig->eventually_logs(name_of(last_rank()) + " has been late for"));
      BOOST_TEST(rig->eventually_ends());
      BOOST_TEST(!rig->has_logged("ranks"), rig->lines());
    }
    world->barrier();
  }
}

BOOST_AUTO_TEST_CASE(the_limit_of_device_waits_exceeds_the_watchdogs_reporting_time) {
  BOOST_TEST((wait_limit_beside(3s) == 30min));
  BOOST_TEST((wait_limit_beside(600s) > 4.5 * 600s));
  BOOST_TEST((wait_limit_beside(std::chrono::hours(10)) > 4.5 * 10h));
  BOOST_TEST((wait_limit_beside(0s) > std::chrono::years(1)));
  BOOST_TEST((wait_limit_beside(std::chrono::duration<double>(1e300)) == wait_limit_beside(0s)));
  BOOST_TEST((std::chrono::steady_clock::now() + wait_limit_beside(0s) >
              std::chrono::steady_clock::now()));
}

BOOST_AUTO_TEST_CASE(a_stall_after_a_broken_connection_does_not_end_the_job) {
  const std::set<int> before = tcp_connections();
  Rig rig(60s);
  rig.begin_second_step();
  rig.move_for(1500ms);  // lets the ranks' watchdogs connect
  world->barrier();
  std::set<int> connections;
  if (world->rank() == last_rank()) {
    for (const int each : tcp_connections()) {
      if (!before.contains(each)) connections.insert(each);
    }
    BOOST_TEST(connections.size() == (world->size() > 1 ? 1U : 0U));
  }

  for (const int each : connections) ::shutdown(each, SHUT_RDWR);
  std::this_thread::sleep_for(3s);  // five times the limit after a loss
  world->barrier();

  BOOST_TEST(!rig.ended);
  BOOST_TEST(!rig.has_logged("is gone"), rig.lines());
}

BOOST_AUTO_TEST_CASE(a_failed_watchdog_is_disabled_on_all_ranks_and_ends_no_job) {
  Rig rig(1s, 2);
  rig.begin_second_step();
  rig.move_for(1500ms);
  world->barrier();
  rig.fails = world->rank() == last_rank();

  BOOST_TEST(rig.eventually_logs(
      fmt::format("the watchdog is disabled (that of rank {} failed: planted)", last_rank())));
  world->barrier();
  std::this_thread::sleep_for(2s);  // twice the limit

  BOOST_TEST(!rig.ended);
  BOOST_TEST(!rig.has_logged("progress"), rig.lines());
  BOOST_TEST(!rig.has_logged("is gone"), rig.lines());
  world->barrier();
}

BOOST_AUTO_TEST_CASE(a_requested_interface_is_used) {
  Rig rig(1s, 64, "nosuch0,127.0.0.0/8");
  rig.begin_second_step();
  rig.board.enter(world->rank() == last_rank() ? Phase::data : Phase::update);
  if (world->rank() != last_rank()) rig.board.begin_wait(CollectiveKind::barrier, 0);

  BOOST_TEST(rig.eventually_logs(name_of(last_rank()) + " has been late for"));
  world->barrier();
}

BOOST_AUTO_TEST_CASE(a_rank_from_which_others_receive_in_vain_is_named) {
  if (world->size() == 1) return;
  Rig rig(1s);
  WatchedCommunicator comm(*world, rig.board);
  std::vector<float> values(100);
  rig.begin_second_step();
  rig.board.enter(Phase::forward);

  if (world->rank() != last_rank()) comm.receive(std::span(values), last_rank());
  BOOST_TEST(rig.eventually_logs(name_of(last_rank()) + " has been late for"));
  BOOST_TEST(rig.has_logged(last_rank() == 1 ? "; rank 0 (node7) waits in the receive, in forward"
                                             : " ranks wait in the receive, in forward of step 2"),
             rig.lines());
  for (int rank = 0; world->rank() == last_rank() && rank < last_rank(); ++rank) {
    comm.send(std::span<const float>(values), rank);
  }
  world->barrier();
}

BOOST_AUTO_TEST_CASE(an_interface_that_one_host_lacks_stops_all_ranks) {
  const std::string asked = world->rank() == last_rank() ? "nosuch0" : "lo";

  const std::string place =
      last_rank() == 0 ? "" : "rank " + std::to_string(last_rank()) + " on " + host_name() + ": ";
  BOOST_CHECK_EXCEPTION(Rig(1s, 64, asked), Error, [&](const Error& error) {
    return error.status() == ExitStatus::usage &&
           std::string(error.what())
                   .find(place + "--watchdog-interface nosuch0 is not on this host") == 0 &&
           std::string(error.what()).find("lo 127.0.0.1") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(ranks_that_leave_are_not_reported) {
  auto rig = std::make_unique<Rig>(1s, 1);
  rig->begin_second_step();
  if (world->rank() != 0) {
    rig.reset();
  } else {
    rig->move_for(1500ms);
    BOOST_TEST(rig->lines().empty());
  }
  world->barrier();
}

BOOST_AUTO_TEST_CASE(a_limit_of_zero_disables_the_watchdog) {
  Rig rig(0s);
  std::this_thread::sleep_for(200ms);

  BOOST_TEST(rig.lines().empty());
  world->barrier();
}

int main(int argc, char** argv) {
  const MpiEnvironment environment(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
