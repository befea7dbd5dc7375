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

/// The communicators of a rank, behind slow links: `hybrid` in pairs.
struct Links {
  explicit Links(Clock::duration delay)
      : pair(make_mpi_communicator({.color = world->rank() / 2})),
        replicas(make_mpi_communicator({.color = world->rank() % 2})),
        all(*world, delay, 256),
        in_pair(*pair, delay, 256),
        to_others(*replicas, delay, 256) {}

  std::unique_ptr<Communicator> pair;
  std::unique_ptr<Communicator> replicas;
  test::DelayingCommunicator all;
  test::DelayingCommunicator in_pair;
  test::DelayingCommunicator to_others;
};

Rig::Options options_for(ShardMode mode, Links& links) {
  Rig::Options options{.global_batch = 64,
                       .bucket_bytes = 60e3,
                       .lr = 1e-3,
                       .shard = mode,
                       .shard_group = 2,
                       .width = 32};
  if (mode == ShardMode::hybrid) {
    options.device_comms = {&links.all, &links.in_pair, &links.to_others};
  }
  return options;
}

/// Of the delays of all that a step starts, which take as long together as `of` says.
template <typename Part>
double exposed_share(ShardMode mode, Part&& of) {
  Links quick(Clock::duration::zero());
  Rig undelayed(quick.all, options_for(mode, quick));
  undelayed.run();
  for (auto* link : {&quick.all, &quick.in_pair, &quick.to_others}) link->forget();
  undelayed.run();
  std::size_t started = 0;
  for (auto* link : {&quick.all, &quick.in_pair, &quick.to_others})
    started += link->starts().size();
  const auto collectives = static_cast<double>(started);
  BOOST_TEST_REQUIRE(collectives > 4);
  const Quickest computing = quickest(undelayed);
  const std::chrono::duration<double> delay(of(computing) / collectives);
  Links slow(std::chrono::duration_cast<Clock::duration>(delay));
  Rig delayed(slow.all, options_for(mode, slow));
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
  if (world->size() != 4) return;
  expect_exposed_below(0.3, ShardMode::hybrid,
                       [](const Quickest& computing) { return 0.8 * computing.step; });
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto host = make_mpi_communicator();
  const auto shared = make_shared_memory_communicator(*host).communicator;
  world = shared ? shared.get() : host.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
