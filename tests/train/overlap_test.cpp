#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/shared_memory_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "stepped_communicator.hpp"
#include "train_rig.hpp"

#include <memory>
#include <string>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

/// A rank that trains over slow links; with `hybrid`, in shard groups of two. Time is counted in
/// steps of programs.
struct SlowRank {
  SlowRank(ShardMode mode, double delay)
      : pair(world->split(world->rank() / 2, 0)),
        replicas(world->split(world->rank() % 2, 0)),
        all(*world, clock, delay),
        in_pair(*pair, clock, delay),
        to_others(*replicas, clock, delay),
        rig(all, options_for(mode)) {
    rig.engine().set_step_timer(clock);
    rig.run();
  }
  [[nodiscard]] Rig::Options options_for(ShardMode mode) {
    Rig::Options options{
        .global_batch = 64, .bucket_bytes = 60e3, .shard = mode, .shard_group = 2, .width = 32};
    if (mode == ShardMode::hybrid) options.device_comms = {&all, &in_pair, &to_others};
    return options;
  }
  [[nodiscard]] double started() const {
    return static_cast<double>(all.started() + in_pair.started() + to_others.started());
  }

  test::StepClock clock;
  std::unique_ptr<Communicator> pair;
  std::unique_ptr<Communicator> replicas;
  test::SteppedCommunicator all;
  test::SteppedCommunicator in_pair;
  test::SteppedCommunicator to_others;
  Rig rig;
};

/// The exposed fraction of the delays of a training step's collectives. All delays together take
/// `part` of the step's computation.
double exposed_share(ShardMode mode, double part) {
  SlowRank undelayed(mode, 0);
  const double begin = undelayed.clock.now();
  const double started_before = undelayed.started();
  undelayed.rig.run();
  const double computing = undelayed.clock.now() - begin;
  const double collectives = undelayed.started() - started_before;
  BOOST_TEST_REQUIRE(computing > 50);
  BOOST_TEST_REQUIRE(collectives > 4);

  const double delays = part * computing;
  SlowRank delayed(mode, delays / collectives);
  const double waited_before = delayed.clock.waited();
  delayed.rig.run();
  return (delayed.clock.waited() - waited_before) / delays;
}

/// Its collectives complete only in wait().
class NeverReady final : public ForwardingCommunicator {
 public:
  explicit NeverReady(Communicator& inner) : ForwardingCommunicator(inner) {}
  [[nodiscard]] int tests() const noexcept { return tests_; }
  /// From now on test() fails.
  void fail() noexcept { fails_ = true; }
  bool test(Request& request) override {
    if (fails_) throw Error(ExitStatus::internal, "planted");
    if (!request.done()) ++tests_;
    return request.done();
  }

 private:
  int tests_ = 0;
  bool fails_ = false;
};

void expect_exposed_below(double most, ShardMode mode, double part) {
  const double share = exposed_share(mode, part);
  BOOST_TEST(share < most, "--shard " << static_cast<int>(mode) << ": " << share << " exposed");
  BOOST_TEST_MESSAGE("--shard " << static_cast<int>(mode) << ": " << share << " exposed");
}

}  // namespace

// Backward is about two thirds of the computation.
BOOST_AUTO_TEST_CASE(reductions_half_as_long_as_backward_are_hidden_by_it) {
  expect_exposed_below(0.15, ShardMode::none, 0.33);
}

BOOST_AUTO_TEST_CASE(gathers_and_reduce_scatters_over_slow_links_are_hidden) {
  for (const ShardMode mode : {ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
    expect_exposed_below(0.3, mode, 0.8);
  }
  if (world->size() != 4) return;
  expect_exposed_below(0.3, ShardMode::hybrid, 0.8);
}

BOOST_AUTO_TEST_CASE(reductions_progress_while_a_batch_is_loaded) {
  // With gradients sharded, backward ends with the last reduce-scatter.
  for (const ShardMode mode : {ShardMode::none, ShardMode::optimizer}) {
    NeverReady comm(*world);
    int tests = 0;
    Rig rig(comm, {.bucket_bytes = 60e3, .shard = mode, .before_batch = [&](auto meanwhile) {
                     const int before = comm.tests();
                     meanwhile();
                     tests += comm.tests() - before;
                   }});
    BOOST_TEST(tests == 0);
    rig.run();
    BOOST_TEST(tests > 0, "--shard " << static_cast<int>(mode));
  }
}

BOOST_AUTO_TEST_CASE(an_error_of_a_reduction_while_a_batch_is_loaded_is_not_a_data_error) {
  NeverReady comm(*world);
  bool steps = false;
  Rig rig(comm, {.bucket_bytes = 60e3, .before_batch = [&](auto meanwhile) {
                   if (steps) comm.fail();
                   meanwhile();
                 }});
  steps = true;
  BOOST_CHECK_EXCEPTION((void)rig.run(), Error,
                        [](const Error& error) { return std::string(error.what()) == "planted"; });
  BOOST_TEST(!rig.step().data_error().has_value());
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto host = make_mpi_communicator();
  const auto shared = make_shared_memory_communicator(*host).communicator;
  world = shared ? shared.get() : host.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
