#define BOOST_TEST_MODULE watchdog
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/watchdog.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

using namespace lockstep;
using namespace std::chrono_literals;

namespace {

Communicator* world = nullptr;

/// A watchdog that notes what it would do.
class Rig final {
 public:
  explicit Rig(std::chrono::duration<double> limit, int fan_out = 64)
      : grid_(make_process_grid()),
        watchdog_(
            std::make_unique<Watchdog>(*world, grid_, board,
                                       WatchdogOptions{.limit = limit,
                                                       .cores = {},
                                                       .fan_out = fan_out,
                                                       .loss_limit = 600ms,
                                                       .end_job = [this] { ended = true; }})) {
    watchdog_->log_to([this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_ += line + "\n";
    });
  }
  PhaseBoard board;
  std::atomic<bool> ended = false;

  [[nodiscard]] std::string lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  [[nodiscard]] bool says(const std::string& part) {
    return lines().find(part) != std::string::npos;
  }
  /// Until the log says it; false after a long time.
  [[nodiscard]] bool comes_to_say(const std::string& part) {
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         std::chrono::steady_clock::now() < end;) {
      if (says(part)) return true;
      std::this_thread::sleep_for(10ms);
    }
    return false;
  }
  void move_for(std::chrono::milliseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time;
         std::chrono::steady_clock::now() < end;) {
      board.move();
      std::this_thread::sleep_for(10ms);
    }
  }
  Watchdog& watchdog() { return *watchdog_; }

 private:
  ProcessGrid grid_;
  std::mutex mutex_;
  std::string lines_;
  std::unique_ptr<Watchdog> watchdog_;
};

int last_rank() {
  return world->size() - 1;
}
std::string name_of(int rank) {
  return "rank " + std::to_string(rank) + " (" + make_process_grid().host + ")";
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_move_are_left_in_peace) {
  Rig rig(1s);

  rig.move_for(1500ms);
  world->barrier();

  BOOST_TEST(rig.lines().empty());
  BOOST_TEST(!rig.ended);
}

BOOST_AUTO_TEST_CASE(one_moving_rank_is_progress_of_all) {
  Rig rig(1s);
  rig.board.begin_step(1);
  rig.board.begin_step(2);

  if (world->rank() == last_rank()) rig.move_for(1500ms);
  world->barrier();

  BOOST_TEST(rig.lines().empty());
}

BOOST_AUTO_TEST_CASE(a_late_rank_is_named_to_all_over_any_tree) {
  for (const int fan_out : {1, 2}) {
    Rig rig(2s, fan_out);
    rig.board.begin_step(1);
    rig.board.begin_step(2);
    rig.board.enter(world->rank() == last_rank() ? Phase::data : Phase::communication);
    if (world->rank() != last_rank()) {
      rig.board.begin_bucket_wait(CollectiveKind::started_all_reduce);
    }

    BOOST_TEST(rig.comes_to_say(name_of(last_rank()) + " has been late for"));
    BOOST_TEST(rig.says("in data of step 2"));
    if (world->size() > 1) BOOST_TEST(rig.says("the all-reduce of bucket 1, in communication"));
    world->barrier();
    // The one that judges ends the job; the others give it time.
    BOOST_TEST(rig.ended == (world->rank() == 0));
  }
}

BOOST_AUTO_TEST_CASE(names_given_later_are_used) {
  Rig rig(1s);
  std::vector<std::string> names;
  for (int rank = 0; rank < world->size(); ++rank) names.push_back("GPU " + std::to_string(rank));
  rig.watchdog().name_ranks(names);
  rig.board.begin_step(1);
  rig.board.begin_step(2);
  rig.board.enter(Phase::update);

  BOOST_TEST(rig.comes_to_say("GPU 0 has been late"));
  world->barrier();
}

BOOST_AUTO_TEST_CASE(ranks_that_leave_are_not_missed) {
  auto rig = std::make_unique<Rig>(1s, 1);
  if (world->rank() != 0) {
    rig.reset();
  } else {
    rig->move_for(1500ms);
    BOOST_TEST(rig->lines().empty());
  }
  world->barrier();
}

BOOST_AUTO_TEST_CASE(a_limit_of_zero_is_no_watchdog) {
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
