#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "parallel/delaying_communicator.hpp"
#include "train_rig.hpp"

#include <chrono>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::test::relative_difference;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

const std::vector<ShardMode> all_modes{ShardMode::optimizer, ShardMode::grad, ShardMode::full,
                                       ShardMode::hybrid};
constexpr ShardUnit merged{.by = ShardUnit::By::automatic, .smallest = 0};

std::int64_t group_of(ShardMode mode) {
  if (mode != ShardMode::hybrid) return 0;
  return world->size() % 2 == 0 ? 2 : world->size();
}

/// Trains twenty steps replicated and sharded, from the same values on the same data. `tolerance`
/// covers sums in a different order; in the same order, the bits must be equal.
void check_as_replicated(Rig::Options options, const std::vector<ShardMode>& modes,
                         double tolerance) {
  Rig replicated(*world, options);
  for (int step = 0; step < 20; ++step) replicated.run();
  const auto expected = replicated.all_parameters();
  for (const ShardMode mode : modes) {
    options.shard = mode;
    options.shard_group = group_of(mode);
    Rig shared(*world, options);
    BOOST_TEST_CONTEXT("--shard " << static_cast<int>(mode) << ", optimizer "
                                  << static_cast<int>(options.optimizer) << ", precision "
                                  << to_string(options.precision) << ", " << options.model
                                  << (options.device ? " on a device" : "")) {
      for (int step = 0; step < 20; ++step) {
        const StepResult result = shared.run();
        BOOST_TEST((result.updated && !result.overflowed));
      }
      const auto values = shared.all_parameters();
      // Two summands commute; the norms of LARS and LAMB are sums over all shards.
      const bool has_norms =
          options.optimizer == OptimizerKind::lars || options.optimizer == OptimizerKind::lamb;
      if (world->size() <= 2 && !has_norms) {
        BOOST_TEST((values == expected));
        BOOST_TEST((shared.statistics() == replicated.statistics()));
      }
      BOOST_TEST(relative_difference(values, expected) < tolerance);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_vision_transformer_trains_in_16_bits_in_each_mode) {
  for (const Precision precision : {Precision::bf16, Precision::fp16}) {
    for (const bool device : {false, true}) {
      if (!device && precision == Precision::fp16) continue;  // CPUs do not support fp16
      check_as_replicated({.model = "mini-vit",
                           .global_batch = 12,
                           .lr = 1e-3,
                           .precision = precision,
                           .device = device},
                          all_modes, 1e-3);
    }
  }
}

BOOST_AUTO_TEST_CASE(each_mode_optimizer_and_precision_gives_the_replicated_parameters) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::lars,
        OptimizerKind::lamb, OptimizerKind::lion}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      for (const bool device : {false, true}) {
        if (!device && precision == Precision::fp16) continue;  // CPUs do not support fp16
        Rig::Options options{
            .model = "mlp",
            .global_batch = 12,
            .optimizer = optimizer,
            // Adam's first steps follow the signs of gradients, which rounding may flip.
            .lr = traits_of(optimizer).has_moments ? 1e-5 : 0.01,
            .precision = precision,
            .device = device};
        if (precision == Precision::fp16) options.loss_scale = LossScale{.scale = 256};
        check_as_replicated(options, all_modes, precision == Precision::fp32 ? 1e-5 : 1e-3);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(norms_and_filters_give_the_replicated_parameters_in_16_bits) {
  for (const bool device : {false, true}) {
    for (const CommunicationDtype type :
         {CommunicationDtype::automatic, CommunicationDtype::fp32}) {
      check_as_replicated({.global_batch = 8,
                           .lr = 1e-4,
                           .precision = Precision::bf16,
                           .device = device,
                           .param_dtype = type},
                          all_modes, 1e-3);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_reduced_in_16_bits_differ_only_by_rounding) {
  for (const bool device : {false, true}) {
    Rig in_fp32(*world, {.model = "simple-cnn", .device = device});
    const StepResult expected = in_fp32.run();
    const auto exact = in_fp32.gradients();
    for (const ShardMode mode : all_modes) {
      for (const auto& [dtype, unit] :
           {std::pair{ElementType::bf16, 0x1p-8}, {ElementType::f16, 0x1p-11}}) {
        Rig in_16_bits(*world, {.model = "simple-cnn",
                                .reduce_dtype = dtype,
                                .device = device,
                                .shard = mode,
                                .shard_group = group_of(mode)});
        const StepResult result = in_16_bits.run();

        // Like replicated gradients: each rank rounds its value once, and each sum of two rounds
        // once more. fp16 rounds values below 2^-14, the subnormals, more.
        const double difference = relative_difference(in_16_bits.all_gradients(), exact);
        BOOST_TEST(difference < 3 * world->size() * unit + 1e-4);
        if (world->size() == 1) BOOST_TEST(difference == 0);
        if (world->size() > 1) BOOST_TEST(difference > unit / 50);  // the reduction was in 16 bits
        BOOST_TEST(result.sums.loss == expected.sums.loss, boost::test_tools::tolerance(1e-6));
        BOOST_TEST(result.sums.samples == 64);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(reductions_in_16_bits_train_like_reductions_in_fp32) {
  for (const ShardMode mode : all_modes) {
    for (const int accumulate : {1, 3}) {
      Rig::Options options{.model = "mlp", .global_batch = 36, .accumulate = accumulate};
      Rig in_fp32(*world, options);
      options.reduce_dtype = ElementType::bf16;
      options.shard = mode;
      options.shard_group = group_of(mode);
      Rig in_16_bits(*world, options);
      for (int step = 0; step < 10; ++step) {
        in_fp32.run();
        in_16_bits.run();
      }
      const double difference =
          relative_difference(in_16_bits.all_parameters(), in_fp32.all_parameters());
      BOOST_TEST(difference < 0.01);
      if (world->size() > 1) BOOST_TEST(difference > 1e-7);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_overflow_in_a_reduction_skips_the_step_and_halves_the_scale) {
  for (const ShardMode mode : all_modes) {
    Rig rig(*world, {.model = "mlp",
                     .global_batch = 12,
                     .precision = Precision::fp16,
                     .reduce_dtype = ElementType::f16,
                     .device = true,
                     .loss_scale = LossScale{.scale = 0x1p24},
                     .shard = mode,
                     .shard_group = group_of(mode)});
    const auto start = rig.all_parameters();
    int skipped = 0;
    while (rig.run().overflowed) {
      BOOST_TEST((rig.all_parameters() == start));
      ++skipped;
      BOOST_TEST_REQUIRE(skipped < 24);
    }
    BOOST_TEST(skipped > 0);
    BOOST_TEST(rig.scaler().scale() == std::ldexp(0x1p24, -skipped));
    BOOST_TEST((rig.all_parameters() != start));
  }
}

BOOST_AUTO_TEST_CASE(a_rank_sends_the_predicted_bytes) {
  for (const ShardMode mode : {ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
    for (const CommunicationDtype parameters :
         {CommunicationDtype::automatic, CommunicationDtype::fp32}) {
      for (const ElementType dtype : {ElementType::f32, ElementType::bf16}) {
        Config config;
        config.shard = mode;
        config.precision = Precision::bf16;
        config.param_dtype = parameters;
        config.reduce_dtype =
            dtype == ElementType::bf16 ? CommunicationDtype::bf16 : CommunicationDtype::fp32;
        test::DelayingCommunicator counting(*world, 0ms, 1024);
        Rig rig(counting, {.global_batch = 8,
                           .precision = config.precision,
                           .reduce_dtype = dtype,
                           .shard = mode,
                           .param_dtype = parameters});
        rig.run();
        const std::size_t before = counting.bytes();
        rig.run();
        // Whole buffers are counted; a rank sends all of a buffer except one rank's share.
        const std::size_t tail = TailBucket(rig.engine().graph()).size() * sizeof(float);
        const double others = static_cast<double>(world->size() - 1) / world->size();
        const double sent = static_cast<double>(counting.bytes() - before - tail) * others;
        const auto& layout = rig.engine().layout();
        double predicted = shard_cost(config, layout, world->size(), 1).sent;
        // Images have no gradient, so backward does not gather the first filter if it is a unit
        // without its norm.
        if (mode == ShardMode::full && parameters == CommunicationDtype::automatic) {
          predicted -= others * 2 * static_cast<double>((layout.units.end() - 2)->size());
        }
        BOOST_TEST(sent == predicted, boost::test_tools::tolerance(1e-9));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_rank_of_a_group_sends_the_predicted_bytes) {
  for (const int group : {1, 2, 3, 4}) {
    if (world->size() % group != 0) continue;
    const int groups = world->size() / group;
    const auto within = world->split(world->rank() / group, 0);
    const auto across = world->split(world->rank() % group, 0);
    for (const ElementType dtype : {ElementType::f32, ElementType::bf16}) {
      Config config;
      config.shard = ShardMode::hybrid;
      config.shard_group = group;
      config.reduce_dtype =
          dtype == ElementType::bf16 ? CommunicationDtype::bf16 : CommunicationDtype::fp32;
      test::DelayingCommunicator in_group(*within, 0ms, 1024);
      test::DelayingCommunicator to_others(*across, 0ms, 1024);
      Rig rig(*world, {.global_batch = 12,
                       .reduce_dtype = dtype,
                       .shard = ShardMode::hybrid,
                       .shard_group = group,
                       .device_comms = {world, &in_group, &to_others}});
      rig.run();
      const std::size_t before = in_group.bytes();
      const std::size_t across_before = to_others.bytes();
      rig.run();
      const double others = static_cast<double>(group - 1) / group;
      const double sent_across =
          2.0 * (groups - 1) / groups * static_cast<double>(to_others.bytes() - across_before);
      const double sent = static_cast<double>(in_group.bytes() - before) * others + sent_across;
      const ShardCost predicted = shard_cost(config, rig.engine().layout(), world->size(), 1);
      BOOST_TEST_CONTEXT("groups of " << group << ", dtype " << static_cast<int>(dtype)) {
        BOOST_TEST(sent == predicted.sent, boost::test_tools::tolerance(1e-9));
        BOOST_TEST(sent_across == predicted.sent_across, boost::test_tools::tolerance(1e-9));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gathered_16_bit_parameters_use_half_the_memory) {
  const auto bytes = [](bool device, CommunicationDtype type) {
    Rig rig(*world, {.model = "mlp",
                     .global_batch = 4,
                     .precision = Precision::bf16,
                     .device = device,
                     .shard = ShardMode::full,
                     .param_dtype = type,
                     .width = 256});
    return rig.engine().compile_inference(1, &rig.state().exchange())->activation_bytes();
  };
  for (const bool device : {false, true}) {
    const std::size_t in_fp32 = bytes(device, CommunicationDtype::fp32);
    const std::size_t in_16_bits = bytes(device, CommunicationDtype::automatic);
    BOOST_TEST(10 * in_16_bits <= 7 * in_fp32);
  }
}

BOOST_AUTO_TEST_CASE(merged_and_unmerged_units_match_replicated_training) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto units = [&](double bucket_bytes, ShardUnit unit) {
      Rig::Options options{.global_batch = 8,
                           .bucket_bytes = bucket_bytes,
                           .lr = 1e-4,
                           .precision = precision,
                           .shard_unit = unit};
      check_as_replicated(options, {ShardMode::optimizer}, 1e-3);
      options.shard = ShardMode::optimizer;
      return Rig(*world, options).state().step_end().units;
    };
    const std::size_t blocks = units(25e6, {.by = ShardUnit::By::block, .smallest = 0});
    const std::size_t vectors = precision == Precision::bf16 ? 1 : 0;
    BOOST_TEST(units(1000, merged) == blocks);
    BOOST_TEST(units(25e6, merged) == 1 + vectors);
    const std::size_t some = units(60000, merged);
    BOOST_TEST((1 + vectors < some && some < blocks), some << " of " << blocks);
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
