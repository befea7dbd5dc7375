#define BOOST_TEST_MODULE sharded_overlap
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
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

constexpr ShardMode all_modes[] = {ShardMode::optimizer, ShardMode::grad, ShardMode::full};
constexpr int steps = 12;

/// The quickest of some steps, in seconds: what else runs on the machine only adds.
double quickest(Rig& rig) {
  double best = 1e9;
  for (int i = 0; i < steps; ++i) {
    world->barrier();
    const auto begin = Clock::now();
    rig.run();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    best = std::min(best, world->all_reduce_value(seconds.count(), ReduceOp::max));
  }
  return best;
}

Rig::Options options_for(ShardMode mode) {
  return {.global_batch = 64, .lr = 1e-3, .shard = mode, .width = 32};
}

/// Of the delays of all that a step starts, together nearly as long as it computes.
double exposed_share(ShardMode mode) {
  Rig undelayed(*world, options_for(mode));
  undelayed.run();
  const double computing = quickest(undelayed);
  test::DelayingCommunicator counting(*world, Clock::duration::zero(), 256);
  {
    Rig rig(counting, options_for(mode));
    rig.run();
    counting.forget();
    rig.run();
  }
  const auto collectives = static_cast<double>(counting.starts().size());
  const std::chrono::duration<double> delay(0.8 * computing / collectives);
  test::DelayingCommunicator slow(*world, std::chrono::duration_cast<Clock::duration>(delay), 256);
  Rig delayed(slow, options_for(mode));
  delayed.run();
  return (quickest(delayed) - computing) / (collectives * delay.count());
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_slow_links_gathers_and_scatters_hide_behind_computing) {
  if (world->size() == 1) return;
  for (const ShardMode mode : all_modes) {
    // Noise only adds, so one quiet attempt shows it.
    double share = 1;
    for (int attempt = 0; attempt < 5 && share >= 0.3; ++attempt) share = exposed_share(mode);
    BOOST_TEST(share < 0.3, "--shard " << static_cast<int>(mode) << ": " << share << " exposed");
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
