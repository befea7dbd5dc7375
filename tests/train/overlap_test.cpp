#define BOOST_TEST_MODULE overlap
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/shared_memory_communicator.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "parallel/delaying_communicator.hpp"
#include "train_rig.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;
using Clock = std::chrono::steady_clock;

namespace {

Communicator* world = nullptr;

constexpr int steps = 12;

/// Of some steps, in seconds, the quickest each: what else runs on the machine only adds.
struct Quickest {
  double step = 1e9;
  double backward = 1e9;
};
Quickest quickest(Rig& rig) {
  Quickest best;
  for (int i = 0; i < steps; ++i) {
    world->barrier();
    const auto begin = Clock::now();
    const StepResult result = rig.run();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    best.step = std::min(best.step, world->all_reduce_value(seconds.count(), ReduceOp::max));
    best.backward =
        std::min(best.backward, world->all_reduce_value(result.times.backward, ReduceOp::max));
  }
  return best;
}

Rig::Options options_for(ShardMode mode) {
  return {.global_batch = 64, .bucket_bytes = 60e3, .lr = 1e-3, .shard = mode, .width = 32};
}

/// Of the delays of all that a step starts, which take as long together as `of` says.
template <typename Part>
double exposed_share(ShardMode mode, Part&& of) {
  Rig undelayed(*world, options_for(mode));
  undelayed.run();
  const Quickest computing = quickest(undelayed);
  test::DelayingCommunicator counting(*world, Clock::duration::zero(), 256);
  {
    Rig rig(counting, options_for(mode));
    rig.run();
    counting.forget();
    rig.run();
  }
  const auto collectives = static_cast<double>(counting.starts().size());
  BOOST_TEST_REQUIRE(collectives > 4);
  const std::chrono::duration<double> delay(of(computing) / collectives);
  test::DelayingCommunicator slow(*world, std::chrono::duration_cast<Clock::duration>(delay), 256);
  Rig delayed(slow, options_for(mode));
  delayed.run();
  return (quickest(delayed).step - computing.step) / (collectives * delay.count());
}

/// Noise only adds, so one quiet attempt shows it.
template <typename Part>
void expect_exposed_below(double most, ShardMode mode, Part&& of) {
  double share = 1;
  for (int attempt = 0; attempt < 5 && share >= most; ++attempt) share = exposed_share(mode, of);
  BOOST_TEST(share < most, "--shard " << static_cast<int>(mode) << ": " << share << " exposed");
  BOOST_TEST_MESSAGE("--shard " << static_cast<int>(mode) << ": " << share << " exposed");
}

}  // namespace

BOOST_AUTO_TEST_CASE(reductions_that_last_half_of_backward_hide_behind_it) {
  if (world->size() == 1) return;
  expect_exposed_below(0.4, ShardMode::none,
                       [](const Quickest& computing) { return 0.5 * computing.backward; });
}

BOOST_AUTO_TEST_CASE(a_slow_links_gathers_and_scatters_hide_behind_computing) {
  if (world->size() == 1) return;
  for (const ShardMode mode : {ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
    expect_exposed_below(0.3, mode, [](const Quickest& computing) { return 0.8 * computing.step; });
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto host = make_mpi_communicator();
  const auto shared = make_shared_memory_communicator(*host).communicator;
  world = shared ? shared.get() : host.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
