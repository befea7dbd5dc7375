#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train_rig.hpp"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;
using lockstep::test::relative_difference;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

constexpr ShardMode all_modes[] = {ShardMode::optimizer, ShardMode::grad, ShardMode::full};
/// Tolerance for fp32 sums of four ranks' gradients in a different order, over some steps.
constexpr double rounding = 1e-5;

const char* name_of(ShardMode mode) {
  return mode == ShardMode::optimizer ? "optimizer"
         : mode == ShardMode::grad    ? "grad"
         : mode == ShardMode::full    ? "full"
                                      : "hybrid";
}

/// Relative tolerance for an update. A missing or repeated update differs by 1; Adam's first
/// updates differ if rounding flips the sign of a gradient.
constexpr double same_update = 0.2;

/// Each wait for a started collective lasts 10 ms longer.
class SlowToWait final : public ForwardingCommunicator {
 public:
  explicit SlowToWait(Communicator& inner) : ForwardingCommunicator(inner) {}
  void wait(Request& request) override {
    if (!request.done()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ForwardingCommunicator::wait(request);
  }
};

/// Layer norms of pixels and of flat values, in blocks and outside, and GELUs.
Graph layer_norms() {
  Graph graph("layer-norms", {3, 12, 12});
  ValueId x = graph.conv2d(graph.input(), {.name = "stem", .out_channels = 12, .stride = 3});
  for (const char* name : {"block1", "block2"}) {
    graph.begin_block();
    const std::string block = name;
    ValueId y = graph.append(LayerNorm{x, {.name = block + ".norm", .eps = 1e-3}});
    y = graph.append(Gelu{graph.conv2d(y, {.name = block + ".conv1", .out_channels = 20})});
    y = graph.conv2d(y, {.name = block + ".conv2", .out_channels = 12, .padding = 2, .bias = true});
    x = graph.add(x, y);
  }
  graph.end_blocks();
  x = graph.append(LayerNorm{graph.flatten(graph.global_avg_pool(x)), {.name = "norm"}});
  graph.softmax_cross_entropy(graph.linear(x, {.name = "fc", .out_features = 10}), {});
  return graph;
}

std::vector<float> update_since(const std::vector<float>& initial, std::vector<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= initial[i];
  return values;
}

/// Trains `steps` steps replicated and sharded, from the same values on the same data.
void check_as_replicated(Rig::Options options, ShardMode mode, int steps, double tolerance) {
  BOOST_TEST_CONTEXT(options.model << " --shard " << name_of(mode) << " --accumulate "
                                   << options.accumulate << ", optimizer "
                                   << static_cast<int>(options.optimizer) << ", " << world->size()
                                   << " ranks") {
    Rig replicated(*world, options);
    options.shard = mode;
    Rig shared(*world, options);
    const std::vector<float> initial = replicated.all_parameters();
    BOOST_TEST((shared.all_parameters() == initial), "different initial values");
    for (int step = 0; step < steps; ++step) {
      const StepResult expected = replicated.run();
      const StepResult result = shared.run();
      BOOST_TEST(result.updated);
      BOOST_TEST(result.sums.loss == expected.sums.loss, boost::test_tools::tolerance(tolerance));
      BOOST_TEST(result.sums.samples == expected.sums.samples);
      BOOST_TEST(result.gradient_norm == expected.gradient_norm,
                 boost::test_tools::tolerance(tolerance));
      if (step > 0) continue;
      BOOST_TEST(relative_difference(shared.all_gradients(), replicated.all_gradients()) <
                 tolerance);
    }
    BOOST_TEST(relative_difference(shared.all_parameters(), replicated.all_parameters()) <
               tolerance);
    BOOST_TEST(relative_difference(update_since(initial, shared.all_parameters()),
                                   update_since(initial, replicated.all_parameters())) <
               same_update);
    BOOST_TEST(relative_difference(shared.statistics(), replicated.statistics()) < tolerance);
    for (std::size_t slot = 0; slot < shared.optimizer().slot_names().size(); ++slot) {
      BOOST_TEST(relative_difference(shared.all_of_slot(slot), replicated.all_of_slot(slot)) <
                 20 * tolerance);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_mode_matches_replicated_training_with_each_optimizer) {
  for (const ShardMode mode : all_modes) {
    for (const OptimizerKind optimizer :
         {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::lars,
          OptimizerKind::lamb, OptimizerKind::lion}) {
      // Adam's first steps follow the signs of gradients, which rounding may flip.
      const bool by_sign = traits_of(optimizer).has_moments;
      check_as_replicated(
          {.model = "mlp", .global_batch = 30, .optimizer = optimizer, .lr = by_sign ? 1e-5 : 0.05},
          mode, 5, by_sign ? 1e-3 : rounding);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_residual_network_matches_replicated_training_for_twenty_steps) {
  for (const ShardMode mode : all_modes) {
    // A ReLU that rounding flips changes all later steps, so the learning rate is small.
    check_as_replicated({.global_batch = 31, .lr = 1e-4}, mode, 20, 1e-3);
  }
}

BOOST_AUTO_TEST_CASE(layer_norms_match_replicated_training) {
  for (const ShardMode mode : all_modes) {
    for (const bool device : {false, true}) {
      for (const int accumulate : {1, 3}) {
        check_as_replicated({.graph = layer_norms,
                             .global_batch = 30,
                             .accumulate = accumulate,
                             .lr = 1e-3,
                             .device = device},
                            mode, 4, 1e-4);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_vision_transformer_matches_replicated_training) {
  for (const ShardMode mode : all_modes) {
    for (const bool device : {false, true}) {
      for (const int accumulate : {1, 3}) {
        check_as_replicated({.model = "mini-vit",
                             .global_batch = 30,
                             .accumulate = accumulate,
                             .lr = 1e-3,
                             .device = device},
                            mode, 4, 1e-4);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(units_may_be_of_any_size) {
  for (const ShardMode mode : all_modes) {
    for (const ShardUnit unit : {ShardUnit{.by = ShardUnit::By::stage, .smallest = 0},
                                 ShardUnit{.by = ShardUnit::By::size, .smallest = 1},
                                 ShardUnit{.by = ShardUnit::By::size, .smallest = 1 << 30}}) {
      check_as_replicated({.global_batch = 24, .lr = 1e-3, .shard_unit = unit}, mode, 2, 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(micro_steps_add_up_if_each_is_reduced_or_only_their_sum) {
  for (const ShardMode mode : all_modes) {
    for (const bool whole : {false, true}) {
      check_as_replicated(
          {.model = "mlp", .global_batch = 33, .accumulate = 3, .accumulate_full_gradients = whole},
          mode, 4, rounding);
    }
  }
}

BOOST_AUTO_TEST_CASE(shard_groups_hold_replicas_of_each_other) {
  for (const std::int64_t group : {1, 2, 3, 4}) {
    if (world->size() % group != 0) continue;
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::lars}) {
      for (const int accumulate : {1, 3}) {
        check_as_replicated({.model = "mlp",
                             .global_batch = 36,
                             .accumulate = accumulate,
                             .clip_grad_norm = accumulate > 1 ? 0.01 : 0.0,
                             .optimizer = optimizer,
                             .shard_group = group},
                            ShardMode::hybrid, 4, rounding);
      }
    }
    check_as_replicated({.model = "mlp",
                         .global_batch = 36,
                         .accumulate = 3,
                         .shard_group = group,
                         .accumulate_full_gradients = true},
                        ShardMode::hybrid, 4, rounding);
    check_as_replicated({.global_batch = 24, .lr = 1e-4, .shard_group = group}, ShardMode::hybrid,
                        3, 1e-3);
    check_as_replicated({.model = "mini-vit", .global_batch = 24, .lr = 1e-3, .shard_group = group},
                        ShardMode::hybrid, 3, 1e-4);
    check_as_replicated({.global_batch = 30,
                         .clip_grad_norm = 0.1,
                         .lr = 1e-3,
                         .synchronised = true,
                         .shard_group = group},
                        ShardMode::hybrid, 2, 1e-4);
  }
}

BOOST_AUTO_TEST_CASE(clipping_and_synchronised_norms_see_all_shards) {
  for (const ShardMode mode : all_modes) {
    check_as_replicated({.model = "mlp", .global_batch = 30, .clip_grad_norm = 0.01}, mode, 4,
                        rounding);
    check_as_replicated(
        {.global_batch = 30, .clip_grad_norm = 0.1, .lr = 1e-3, .synchronised = true}, mode, 2,
        1e-4);
  }
}

BOOST_AUTO_TEST_CASE(a_wait_for_communication_counts_once) {
  for (const ShardMode mode : all_modes) {
    SlowToWait slow(*world);
    Rig rig(slow, {.model = "mlp", .global_batch = 30, .shard = mode});
    for (int step = 0; step < 3; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      const PhaseTimes times = rig.run().times;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      BOOST_TEST_CONTEXT("--shard " << name_of(mode) << ", step " << step) {
        BOOST_TEST(times.forward >= 0);
        BOOST_TEST(times.backward >= 0);
        const double phases =
            times.data + times.forward + times.backward + times.communication + times.optimizer;
        BOOST_TEST(phases <= took.count());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(bf16_uses_the_same_rounded_weights) {
  for (const ShardMode mode : all_modes) {
    check_as_replicated({.model = "mlp", .global_batch = 30, .precision = Precision::bf16}, mode, 3,
                        1e-2);
  }
}

BOOST_AUTO_TEST_CASE(a_device_engine_matches_replicated_training) {
  for (const ShardMode mode : all_modes) {
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adamw}) {
      for (const int accumulate : {1, 2}) {
        Rig::Options options{.model = "mlp",
                             .global_batch = 30,
                             .accumulate = accumulate,
                             .clip_grad_norm = accumulate > 1 ? 1.0 : 0.0,
                             .optimizer = optimizer,
                             .lr = 1e-5,
                             .device = true};
        check_as_replicated(options, mode, 4, 1e-3);
        // Later steps would diverge, because rounding flips ReLUs and norms of few samples amplify
        // that.
        options.model = "mini-resnet";
        check_as_replicated(options, mode, 1, 1e-3);
        options.precision = Precision::bf16;
        check_as_replicated(options, mode, 1, 1e-2);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(lars_on_a_device_uses_the_norms_of_whole_tensors) {
  for (const double lr : {0.05, 2.0}) {
    for (const ShardMode mode : all_modes) {
      check_as_replicated({.model = "mlp",
                           .global_batch = 30,
                           .clip_grad_norm = lr > 1 ? 0.01 : 0.0,
                           .optimizer = OptimizerKind::lars,
                           .lr = lr,
                           .device = true},
                          mode, 5, rounding);
    }
  }
}

BOOST_AUTO_TEST_CASE(lamb_uses_the_norms_of_whole_tensors) {
  for (const bool device : {false, true}) {
    for (const ShardMode mode : all_modes) {
      for (const double clip : {0.0, 0.01}) {
        check_as_replicated({.model = "mlp",
                             .global_batch = 30,
                             .clip_grad_norm = clip,
                             .optimizer = OptimizerKind::lamb,
                             .lr = 1e-5,
                             .device = device},
                            mode, 5, 1e-3);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(shard_groups_of_devices_hold_replicas_of_each_other) {
  for (const std::int64_t group : {1, 2, 3, 4}) {
    if (world->size() % group != 0) continue;
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::lars}) {
      for (const int accumulate : {1, 2}) {
        check_as_replicated({.model = "mlp",
                             .global_batch = 36,
                             .accumulate = accumulate,
                             .clip_grad_norm = accumulate > 1 ? 0.01 : 0.0,
                             .optimizer = optimizer,
                             .device = true,
                             .shard_group = group},
                            ShardMode::hybrid, 4, rounding);
      }
    }
    check_as_replicated({.global_batch = 24,
                         .lr = 1e-5,
                         .precision = Precision::bf16,
                         .device = true,
                         .shard_group = group},
                        ShardMode::hybrid, 1, 1e-2);
  }
}

BOOST_AUTO_TEST_CASE(a_step_allocates_no_more_than_a_replicated_one) {
  const auto allocations = [](ShardMode mode, Precision precision, ElementType dtype) {
    Rig rig(*world, {.model = "mlp",
                     .global_batch = 24,
                     .clip_grad_norm = 1,
                     .optimizer = OptimizerKind::lars,
                     .precision = precision,
                     .reduce_dtype = dtype,
                     .shard = mode,
                     .shard_group = 1});
    for (int step = 0; step < 3; ++step) rig.run();
    const long before = test::allocation_count();
    for (int step = 0; step < 3; ++step) rig.run();
    return test::allocation_count() - before;
  };
  for (const auto& [precision, dtype] :
       {std::pair{Precision::fp32, ElementType::f32}, {Precision::bf16, ElementType::bf16}}) {
    if (!cpu_computes_in(precision)) continue;  // a host device allocates
    const long replicated = allocations(ShardMode::none, precision, dtype);
    for (const ShardMode mode : all_modes) {
      BOOST_TEST(allocations(mode, precision, dtype) == replicated);
    }
    BOOST_TEST(allocations(ShardMode::hybrid, precision, dtype) == replicated);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_keeps_the_predicted_bytes) {
  const auto check = [](ShardMode mode, Precision precision, ElementType dtype,
                        std::int64_t group = 0) {
    for (const int accumulate : {1, 2}) {
      for (const bool whole : {false, accumulate > 1}) {
        Config config;
        config.shard = mode;
        config.precision = precision;
        config.reduce_dtype =
            dtype == ElementType::bf16 ? CommunicationDtype::bf16 : CommunicationDtype::fp32;
        config.accumulate = accumulate;
        config.accumulate_full_gradients = whole;
        config.shard_group = group;
        Rig rig(*world, {.model = "mlp",
                         .global_batch = 16,
                         .accumulate = accumulate,
                         .precision = precision,
                         .reduce_dtype = dtype,
                         .shard = mode,
                         .shard_group = group,
                         .accumulate_full_gradients = whole});
        const StateBytes kept = rig.state().bytes(1);
        const StateBytes predicted =
            shard_cost(config, rig.engine().layout(), world->size(), 1).state;
        const auto close = boost::test_tools::tolerance(0.05);
        BOOST_TEST(
            static_cast<double>(kept.parameters) == static_cast<double>(predicted.parameters),
            close);
        BOOST_TEST(static_cast<double>(kept.gradients) == static_cast<double>(predicted.gradients),
                   close);
        BOOST_TEST(static_cast<double>(kept.optimizer) == static_cast<double>(predicted.optimizer),
                   close);
        if (world->rank() == 0) {
          BOOST_TEST(static_cast<double>(kept.copy) == static_cast<double>(predicted.copy), close);
        }
      }
    }
  };
  for (const ShardMode mode :
       {ShardMode::none, ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const ElementType dtype : {ElementType::f32, ElementType::bf16}) {
        check(mode, precision, dtype);
      }
    }
  }
  for (const std::int64_t group : {1, 2, 4}) {
    if (world->size() % group != 0) continue;
    check(ShardMode::hybrid, Precision::fp32, ElementType::f32, group);
    check(ShardMode::hybrid, Precision::bf16, ElementType::bf16, group);
  }
}

BOOST_AUTO_TEST_CASE(replicated_state_has_a_buffer_for_gradients_reduced_in_16_bits) {
  for (const ElementType dtype : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    Rig rig(*world, {.model = "mlp", .reduce_dtype = dtype});
    const bool casts = dtype != ElementType::f32 && world->size() > 1;
    const std::size_t buffer = casts ? 2 * rig.engine().layout().size() : 0;
    BOOST_TEST(rig.state().bytes(1).gradients == rig.engine().gradients().size_bytes() + buffer);
  }
}

BOOST_AUTO_TEST_CASE(sums_in_the_same_order_give_the_same_bits) {
  // Two summands commute.
  if (world->size() > 2) return;
  for (const ShardMode mode : all_modes) {
    for (const OptimizerKind optimizer :
         {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
      for (const Precision precision : {Precision::fp32, Precision::bf16}) {
        Rig::Options options{.global_batch = 16, .optimizer = optimizer, .precision = precision};
        Rig whole(*world, options);
        options.shard = mode;
        Rig shared(*world, options);
        for (int step = 0; step < 20; ++step) {
          whole.run();
          shared.run();
        }
        BOOST_TEST((shared.all_parameters() == whole.all_parameters()),
                   name_of(mode) << ", optimizer " << static_cast<int>(optimizer));
        BOOST_TEST((shared.statistics() == whole.statistics()));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(two_runs_give_the_same_bits) {
  for (const ShardMode mode : all_modes) {
    Rig one(*world, {.global_batch = 16, .shard = mode});
    Rig other(*world, {.global_batch = 16, .shard = mode});
    for (int step = 0; step < 3; ++step) {
      one.run();
      other.run();
    }
    BOOST_TEST((one.all_parameters() == other.all_parameters()));
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
