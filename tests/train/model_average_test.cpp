#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train_rig.hpp"

#include <cstddef>
#include <vector>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

constexpr double decay = 0.75;

/// The average's parameters and running statistics, on all ranks. Collective.
struct Average {
  explicit Average(Rig& rig)
      : parameters(rig.all_of_slot(rig.optimizer().slot_names().size() - 1)),
        statistics(rig.average()->statistics().begin(), rig.average()->statistics().end()) {}
  std::vector<float> parameters;
  std::vector<float> statistics;
  friend bool operator==(const Average&, const Average&) = default;
};

std::vector<Rig::Options> all_variants() {
  std::vector<Rig::Options> variants;
  for (const bool device : {false, true}) {
    for (const ShardMode mode : {ShardMode::none, ShardMode::optimizer, ShardMode::grad,
                                 ShardMode::full, ShardMode::hybrid}) {
      if (mode == ShardMode::hybrid && world->size() % 2 != 0) continue;
      variants.push_back({.global_batch = 24,
                          .optimizer = OptimizerKind::adamw,
                          .lr = 1e-3,
                          .device = device,
                          .ema_decay = decay,
                          .shard = mode,
                          .shard_group = mode == ShardMode::hybrid ? 2 : 0});
    }
  }
  variants.push_back({.global_batch = 24, .clip_grad_norm = 0.1, .ema_decay = decay});
  variants.push_back(
      {.global_batch = 24, .optimizer = OptimizerKind::lars, .device = true, .ema_decay = decay});
  variants.push_back({.global_batch = 24,
                      .precision = Precision::bf16,
                      .device = true,
                      .ema_decay = decay,
                      .shard = ShardMode::optimizer});
  return variants;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_average_follows_every_update_of_every_shard) {
  for (const Rig::Options& options : all_variants()) {
    BOOST_TEST_CONTEXT("device " << options.device << ", mode "
                                 << static_cast<int>(options.shard)) {
      Rig rig(*world, options);
      rig.run();
      std::vector<float> parameters = rig.all_parameters();
      std::vector<float> statistics = rig.statistics();
      BOOST_TEST((Average(rig).parameters == parameters), "the first update copies");
      BOOST_TEST((Average(rig).statistics == statistics));

      for (int step = 0; step < 3; ++step) {
        rig.run();
        update_average(parameters, rig.all_parameters(), decay);
        update_average(statistics, rig.statistics(), decay);
      }

      BOOST_TEST((Average(rig).parameters == parameters));
      BOOST_TEST((Average(rig).statistics == statistics));
      BOOST_TEST((parameters != rig.all_parameters()));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_exchange_is_undone_by_another_and_training_goes_on) {
  for (const Rig::Options& options : all_variants()) {
    BOOST_TEST_CONTEXT("device " << options.device << ", mode "
                                 << static_cast<int>(options.shard)) {
      Rig rig(*world, options);
      Rig undisturbed(*world, options);
      for (int step = 0; step < 3; ++step) {
        rig.run();
        undisturbed.run();
      }
      const std::vector<float> parameters = rig.all_parameters();
      const Average average(rig);

      rig.average()->exchange();
      BOOST_TEST((rig.all_parameters() == average.parameters));
      BOOST_TEST((rig.statistics() == average.statistics));
      if (!rig.engine().parameters().empty()) {
        BOOST_TEST((rig.parameters() == average.parameters), "the shards of other ranks");
      }
      BOOST_TEST((Average(rig).parameters == parameters));
      rig.average()->exchange();

      BOOST_TEST((rig.all_parameters() == parameters));
      BOOST_TEST((Average(rig) == average));
      rig.run();
      undisturbed.run();
      BOOST_TEST((rig.all_parameters() == undisturbed.all_parameters()));
      BOOST_TEST((Average(rig) == Average(undisturbed)));
      rig.state().await_gathers();
      undisturbed.state().await_gathers();
      BOOST_TEST(rig.bits() == undisturbed.bits());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_overflows_leaves_the_average_unchanged) {
  for (const ShardMode mode : {ShardMode::none, ShardMode::full}) {
    Rig rig(*world, {.global_batch = 24,
                     .precision = Precision::fp16,
                     .device = true,
                     .loss_scale = LossScale{.scale = 0x1p30},
                     .ema_decay = decay,
                     .shard = mode});
    const Average before(rig);
    int skipped = 0;
    while (rig.run().overflowed) {
      BOOST_REQUIRE(++skipped < 40);
      BOOST_TEST((Average(rig) == before));
    }
    BOOST_TEST(skipped > 0);
    // The first update that is made copies, though its step is not the first.
    BOOST_TEST((Average(rig).parameters == rig.all_parameters()));
    BOOST_TEST((Average(rig).statistics == rig.statistics()));
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
