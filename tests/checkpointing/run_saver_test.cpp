#include <boost/test/unit_test.hpp>

#include "io/temporary_directory.hpp"
#include "lockstep/checkpointing/run_saver.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train/train_rig.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using lockstep::test::TemporaryDirectory;
using lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;
std::atomic<bool> disk_hangs = false;
std::atomic<int> hanging = 0;  // fsync calls in progress

}  // namespace

extern "C" int fsync(int file) {
  ++hanging;
  while (disk_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --hanging;
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace {

/// Records the board's phase at each gather.
class GatherRecorder final : public ForwardingCommunicator {
 public:
  GatherRecorder(Communicator& inner, const PhaseBoard& board)
      : ForwardingCommunicator(inner), board_(board) {}
  [[nodiscard]] const std::vector<Phase>& seen() const { return seen_; }
  void delay(std::chrono::milliseconds by) { delay_ = by; }

 protected:
  void begin(const CollectiveCall& call) override {
    if (call.kind != CollectiveKind::gather) return;
    seen_.push_back(board_.read().phase);
    std::this_thread::sleep_for(delay_);
  }

 private:
  const PhaseBoard& board_;
  std::vector<Phase> seen_;
  std::chrono::milliseconds delay_{0};
};

class SlowWrites final {
 public:
  explicit SlowWrites(const char* bytes_per_second) { ::setenv(name, bytes_per_second, 1); }
  SlowWrites(const SlowWrites&) = delete;
  SlowWrites& operator=(const SlowWrites&) = delete;
  ~SlowWrites() { ::unsetenv(name); }

 private:
  static constexpr const char* name = "LOCKSTEP_TEST_WRITE_BYTES_PER_SECOND";
};

/// A run at a boundary between steps.
class Run final {
 public:
  explicit Run(ShardMode mode, SaveInterval every = {},
               const RunSaver::Limits& limits = {.stall = std::chrono::minutes(10)})
      : comm_(*world, board_),
        rig_(comm_, {.model = "mlp", .global_batch = 16, .shard = mode}),
        reporter_(reporter_options()) {
    config_.save_every = every;
    config_.node_mttf = 1e-9;
    if (world->rank() == 0) {
      parts_.checkpoints = &checkpoints_.emplace(directory_ / "checkpoints", 10);
    }
    saver_.emplace(parts_, RunSaver::Saved{}, limits);
  }

  [[nodiscard]] RunSaver& saver() { return *saver_; }
  [[nodiscard]] const PhaseBoard& board() const { return board_; }
  [[nodiscard]] std::string checkpoints() const { return directory_ / "checkpoints"; }
  /// Number of lines of rank 0's log that contain `words`.
  [[nodiscard]] int logged(const std::string& words) const {
    std::istringstream log(test::read_file(directory_ / "log/rank-00000.log"));
    int lines = 0;
    for (std::string line; std::getline(log, line);) lines += line.find(words) != line.npos ? 1 : 0;
    return lines;
  }
  [[nodiscard]] GatherRecorder& comm() { return comm_; }
  /// The estimated duration of a save.
  [[nodiscard]] double save_seconds() const { return (timer_.needed({}) - 5) / 1.5; }

  void start_save(std::int64_t step) {
    saver_->want();
    start_save_if_wanted(step);
  }
  void start_save_if_wanted(std::int64_t step) {
    board_.enter(Phase::update);
    saver_->start_pending(at(step));
  }
  /// Waits until the writer is done. Does not ask for its outcome.
  void await_writer() {
    while (saver_->busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    world->barrier();
  }
  void set_weights(float value) {
    const auto units = rig_.state().units();
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      std::vector<float> values(units[unit].size(), value);
      rig_.state().scatter_parameters(unit, values);
    }
  }
  static TrainingState best(std::int64_t step, std::int64_t best_step) {
    TrainingState state = at(step);
    state.best_step = best_step;
    state.best_top1 = 0.01 * static_cast<double>(best_step);
    return state;
  }
  static TrainingState at(std::int64_t step) {
    TrainingState state;
    state.step = step;
    return state;
  }

 private:
  RunReporterOptions reporter_options() {
    std::filesystem::create_directories(directory_ / "log");
    return {.run_dir = directory_.path(), .grid = grid_, .cores = "", .progress = Progress::plain};
  }

  TemporaryDirectory directory_;
  PhaseBoard board_;
  GatherRecorder comm_;
  TrainRig rig_;
  Config config_;
  ProcessGrid grid_{.rank = world->rank(), .world_size = world->size(), .host = "node"};
  RunReporter reporter_;
  StopTimer timer_{std::nullopt, 1000};
  std::optional<CheckpointDirectory> checkpoints_;
  ImageShape image_ = image_shape(rig_.engine().graph().input_shape());
  RunSaverParts parts_{.config = config_,
                       .comm = *world,
                       .engine = rig_.engine(),
                       .transfer = rig_.state(),
                       .optimizer = rig_.optimizer(),
                       .average = nullptr,
                       .checkpoints = nullptr,
                       .directory = nullptr,
                       .reporter = reporter_,
                       .board = board_,
                       .stop_timer = timer_,
                       .trace = nullptr,
                       .image = image_,
                       .class_names = {},
                       .cores = {}};
  std::optional<RunSaver> saver_;
};

/// A save is due when `interval` has passed since the last one, and not before.
void check_interval(Run& run, std::chrono::milliseconds interval) {
  bool is_timely = false;
  // Repeats a save that took as long as the interval.
  for (std::int64_t step = 1; step <= 20 && !is_timely; ++step) {
    std::this_thread::sleep_for(interval);
    BOOST_TEST(run.saver().is_due(step) == (world->rank() == 0));
    const auto begin = std::chrono::steady_clock::now();
    run.start_save(step);
    run.await_writer();
    run.saver().report();
    const bool is_due = run.saver().is_due(step + 1);
    is_timely = std::chrono::steady_clock::now() - begin < interval;
    if (is_timely) BOOST_TEST(!is_due);
  }
  BOOST_TEST(is_timely);
  run.saver().save_and_wait(Run::at(21));
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_last_save_is_reported_before_the_next_one_begins) {
  Run run(ShardMode::full);
  run.start_save(1);
  run.await_writer();
  {
    const SlowWrites slow("50000");
    run.start_save(2);
    run.saver().report();
    if (world->rank() == 0) {
      BOOST_TEST(run.saver().busy());
      BOOST_TEST(run.board().read().saving == 2);
      BOOST_TEST(run.saver().newest().ends_with("step-00000001.h5"), run.saver().newest());
      BOOST_TEST(run.save_seconds() < 0.5);
    }
    run.saver().save_and_wait(Run::at(2));
  }
  if (world->rank() != 0) return;
  BOOST_TEST(run.board().read().saving == -1);
  BOOST_TEST(run.saver().newest().ends_with("step-00000002.h5"), run.saver().newest());
}

BOOST_AUTO_TEST_CASE(a_save_that_waits_for_another_is_requested_when_it_can_start) {
  for (const SaveInterval every :
       {SaveInterval{.steps = 0, .seconds = 1e-6}, SaveInterval{.steps = 1, .seconds = 0}}) {
    Run run(ShardMode::none, every);
    const bool mine = world->rank() == 0;
    {
      const SlowWrites slow("50000");
      run.start_save(1);
      BOOST_TEST(run.saver().is_due(1) == mine);
      run.start_save(2);
      BOOST_TEST(!run.saver().is_due(2),
                 "a save was requested while the first one is being written");
    }
    run.await_writer();
    BOOST_TEST(run.saver().is_due(3) == mine);
    run.saver().save_and_wait(Run::at(3));
    if (mine) BOOST_TEST(run.saver().newest().ends_with("step-00000003.h5"), run.saver().newest());
  }
}

BOOST_AUTO_TEST_CASE(the_interval_begins_again_at_each_save) {
  Run run(ShardMode::none, {.steps = 0, .seconds = 0.5});
  check_interval(run, std::chrono::milliseconds(500));
}

BOOST_AUTO_TEST_CASE(the_automatic_interval_begins_at_the_last_save) {
  Run run(ShardMode::none, {.automatic = true}, {.schedule = {.shortest = 0.5}});
  check_interval(run, std::chrono::milliseconds(500));
  if (world->rank() == 0) BOOST_TEST(run.logged("saves every 0.0 min (a save delays") == 1);
}

BOOST_AUTO_TEST_CASE(of_short_epochs_not_every_end_is_saved) {
  constexpr auto pause = std::chrono::milliseconds(500);
  const RunSaver::Limits limits{.schedule = {.between_epochs = 0.5, .epoch_ends_share = 1e9}};
  const bool mine = world->rank() == 0;
  Run run(ShardMode::none, {.automatic = true}, limits);
  const auto ends_epoch = [&](std::int64_t step) {
    const bool is_due = run.saver().is_due(step - 1, Boundary::epoch_end);
    if (is_due) run.saver().want(Boundary::epoch_end);
    run.start_save_if_wanted(step);
    run.await_writer();
    run.saver().report();
    return is_due;
  };
  BOOST_TEST(ends_epoch(1) == mine);
  bool is_timely = false;
  for (std::int64_t step = 2; step <= 40 && !is_timely; step += 2) {
    std::this_thread::sleep_for(pause);
    const auto begin = std::chrono::steady_clock::now();
    BOOST_TEST(ends_epoch(step) == mine);
    const bool next = ends_epoch(step + 1);
    is_timely = std::chrono::steady_clock::now() - begin < pause;
    if (is_timely) BOOST_TEST(!next);
  }
  BOOST_TEST(is_timely);
  run.saver().save_and_wait(Run::at(50));

  Run each(ShardMode::none, {.steps = 1000}, limits);
  for (std::int64_t step = 1; step <= 3; ++step) {
    BOOST_TEST(each.saver().is_due(step - 1, Boundary::epoch_end) == mine);
    BOOST_TEST(!each.saver().is_due(step - 1));
    each.saver().want(Boundary::epoch_end);
    each.start_save_if_wanted(step);
    each.await_writer();
    each.saver().report();
  }
  each.saver().save_and_wait(Run::at(4));
}

BOOST_AUTO_TEST_CASE(after_a_failed_save_step_boundaries_do_not_retry_at_once) {
  Run run(ShardMode::none, {.steps = 1, .seconds = 0});
  const bool mine = world->rank() == 0;
  BOOST_TEST(run.saver().is_due(0) == mine);
  if (mine) std::filesystem::rename(run.checkpoints(), run.checkpoints() + "-away");
  run.start_save(1);
  run.await_writer();
  run.saver().report();
  if (mine) BOOST_TEST(run.logged("no checkpoint of step 1") == 1);

  for (std::int64_t step = 2; step < 100; ++step) {
    BOOST_TEST(!run.saver().is_due(step));
    run.start_save(step);  // as at the end of an epoch
    run.await_writer();
    run.saver().report();
  }
  if (mine) BOOST_TEST(run.logged("no checkpoint of step") == 1);

  if (mine) std::filesystem::rename(run.checkpoints() + "-away", run.checkpoints());
  run.saver().save_and_wait(Run::at(100));
  BOOST_TEST(run.saver().is_due(100) == mine);
  if (mine) BOOST_TEST(run.saver().newest().ends_with("step-00000100.h5"), run.saver().newest());
}

BOOST_AUTO_TEST_CASE(a_run_that_ends_at_the_step_of_a_failed_save_makes_it_again) {
  for (const ShardMode mode : {ShardMode::none, ShardMode::full}) {
    Run run(mode);
    const bool mine = world->rank() == 0;
    if (mine) std::filesystem::rename(run.checkpoints(), run.checkpoints() + "-away");
    run.start_save(1);
    run.await_writer();
    if (mine) std::filesystem::rename(run.checkpoints() + "-away", run.checkpoints());

    run.saver().save_and_wait(Run::at(1));

    if (!mine) continue;
    BOOST_TEST(run.logged("no checkpoint of step 1") == 1);
    BOOST_TEST(run.saver().newest().ends_with("step-00000001.h5"), run.saver().newest());
  }
}

BOOST_AUTO_TEST_CASE(a_best_model_whose_save_failed_is_written_as_it_was) {
  const bool mine = world->rank() == 0;
  for (const auto& [mode, retries] :
       {std::pair(ShardMode::none, true), std::pair(ShardMode::none, false),
        std::pair(ShardMode::full, false)}) {
    Run run(mode);
    run.set_weights(1);
    if (mine) std::filesystem::rename(run.checkpoints(), run.checkpoints() + "-away");
    run.saver().want();
    run.saver().start_pending(Run::best(1, 1));
    run.await_writer();
    run.saver().report();
    run.set_weights(2);
    run.start_save_if_wanted(2);
    if (mine) std::filesystem::rename(run.checkpoints() + "-away", run.checkpoints());

    const auto begin = std::chrono::steady_clock::now();
    // The first attempt is due 10 s after the failure.
    while (mine && retries && !run.saver().newest().ends_with("step-00000001.h5")) {
      BOOST_TEST_REQUIRE((std::chrono::steady_clock::now() - begin < std::chrono::minutes(1)));
      run.saver().report();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    run.saver().save_and_wait(Run::best(3, 1));

    if (!mine) continue;
    const auto read = [&](const char* name) {
      return read_checkpoint(run.checkpoints() + "/" + name, CheckpointUse::resume);
    };
    BOOST_TEST(read("best").model.front().values.front() == 1);
    BOOST_TEST(read("latest").model.front().values.front() == 2);
    BOOST_TEST(read("latest").state->best_step == 1);
    BOOST_TEST(run.logged("could not be saved and is lost") == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_new_best_model_is_copied_while_saves_pause_after_a_failure) {
  Run run(ShardMode::none);
  const bool mine = world->rank() == 0;
  if (mine) std::filesystem::rename(run.checkpoints(), run.checkpoints() + "-away");
  run.start_save(1);
  run.await_writer();
  run.saver().report();
  if (mine) std::filesystem::rename(run.checkpoints() + "-away", run.checkpoints());

  run.set_weights(2);
  run.saver().want();
  run.saver().start_pending(Run::best(2, 2));
  run.set_weights(3);
  run.saver().save_and_wait(Run::best(3, 2));

  if (!mine) return;
  const auto best = read_checkpoint(run.checkpoints() + "/best", CheckpointUse::weights);
  BOOST_TEST(best.state->step == 2);
  BOOST_TEST(best.model.front().values.front() == 2);
}

BOOST_AUTO_TEST_CASE(a_best_model_that_cannot_be_written_at_all_is_not_claimed) {
  Run run(ShardMode::none);
  const bool mine = world->rank() == 0;
  run.saver().want();
  run.saver().start_pending(Run::best(1, 1));
  run.await_writer();
  run.saver().report();
  if (mine) std::filesystem::create_directories(run.checkpoints() + "/step-00000002.h5/in-the-way");

  run.saver().want();
  run.saver().start_pending(Run::best(2, 2));
  run.await_writer();
  run.saver().save_and_wait(Run::best(3, 2));

  if (!mine) return;
  const auto latest = read_checkpoint(run.checkpoints() + "/latest", CheckpointUse::resume);
  BOOST_TEST(latest.state->step == 3);
  BOOST_TEST(latest.state->best_step == 1);
  BOOST_TEST(read_checkpoint(run.checkpoints() + "/best", CheckpointUse::resume).state->step == 1);
  BOOST_TEST(run.logged("the best model, of step 2") == 1);
}

BOOST_AUTO_TEST_CASE(a_hanging_save_is_reported_each_time_its_duration_doubles) {
  using namespace std::chrono_literals;
  Run run(ShardMode::none, {}, {.stall = 100ms});
  const bool mine = world->rank() == 0;
  if (mine) {
    disk_hangs = true;
    run.start_save(1);
    while (hanging == 0) std::this_thread::sleep_for(1ms);
    const auto begin = std::chrono::steady_clock::now();
    const auto reports = [&] { return run.logged("step-00000001.h5 has made no progress for"); };
    while (reports() < 3 && std::chrono::steady_clock::now() - begin < 1min) {
      run.saver().report();
      std::this_thread::sleep_for(1ms);
    }
    BOOST_TEST(reports() == 3);
    // At 100, 200 and 400 ms, or later.
    BOOST_TEST((std::chrono::steady_clock::now() - begin >= 400ms));
    BOOST_TEST(run.saver().busy());
    disk_hangs = false;
  }
  run.await_writer();
  run.saver().report();
  if (mine) BOOST_TEST(run.saver().newest().ends_with("step-00000001.h5"), run.saver().newest());
}

BOOST_AUTO_TEST_CASE(gathering_the_state_is_shown_as_saving) {
  Run run(ShardMode::full);
  run.start_save(1);
  BOOST_TEST(!run.comm().seen().empty());
  for (const Phase phase : run.comm().seen()) BOOST_TEST((phase == Phase::save));
  BOOST_TEST((run.board().read().phase == Phase::update));
  run.saver().save_and_wait(Run::at(1));
}

BOOST_AUTO_TEST_CASE(gathering_the_state_counts_as_time_of_the_save) {
  Run run(ShardMode::full);
  run.comm().delay(std::chrono::milliseconds(400));
  run.start_save(1);
  run.saver().save_and_wait(Run::at(1));
  if (world->rank() == 0) BOOST_TEST(run.save_seconds() >= 0.4);
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
