#include <boost/test/unit_test.hpp>

#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "nccl_host_queues.hpp"
#include "train_rig.hpp"

#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

Communicator* world = nullptr;

/// The NCCL communicators of one rank: over all ranks, its shard group and its replicas.
struct Links {
  explicit Links(int group_size, OnDevice::Wait wait = OnDevice::Wait::synchronized) {
    const Mesh mesh = data_mesh(rendezvous.size(), group_size);
    const int rank = rendezvous.rank();
    const std::vector<std::vector<int>> sets{mesh.ranks(rank, {replica_axis, shard_axis}),
                                             mesh.ranks(rank, {shard_axis}),
                                             mesh.ranks(rank, {replica_axis})};
    nccl = std::make_unique<NcclStandIn>(sets);
    BOOST_TEST_REQUIRE((nccl->stream_create(&compute) == CudaResult::success));
    // Devices have different speeds; each one runs one collective at a time.
    nccl->queues.delays.task = 1 + 3 * rendezvous.rank();
    nccl->faults.settle_polls = rendezvous.rank() % 3;
    made = make_nccl_communicators(*nccl, rendezvous, compute, sets,
                                   {.start_limit = 60s, .wait_limit = 20s});
    for (const auto& comm : made) host_side.emplace_back(*comm, wait);
  }
  [[nodiscard]] std::vector<Communicator*> comms() {
    std::vector<Communicator*> all;
    for (OnDevice& comm : host_side) all.push_back(&comm);
    return all;
  }

  Rendezvous rendezvous;
  std::unique_ptr<NcclStandIn> nccl;
  CudaStream compute = nullptr;
  std::vector<std::unique_ptr<DeviceCommunicator>> made;
  std::deque<OnDevice> host_side;
};

/// Tolerance for the parameters after three steps; in 16 bits the sums are rounded differently.
double rounding(Precision precision, ElementType dtype) {
  return precision == Precision::fp32 && dtype == ElementType::f32 ? 1e-5 : 1e-2;
}

}  // namespace

BOOST_AUTO_TEST_CASE(groups_over_nccl_match_replicated_training) {
  for (int group = 1; group <= world->size(); ++group) {
    if (world->size() % group != 0) continue;
    for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::lars}) {
      for (const int accumulate : {1, 3}) {
        TrainRig::Options options{.model = "mlp",
                                  .global_batch = 36,
                                  .accumulate = accumulate,
                                  .clip_grad_norm = accumulate > 1 ? 0.01 : 0.0,
                                  .optimizer = optimizer,
                                  .device = true};
        TrainRig replicated(*world, options);
        options.shard = ShardMode::hybrid;
        options.shard_group = group;
        Links links(group);
        options.device_comms = links.comms();
        TrainRig shared(*world, options);

        for (int step = 0; step < 4; ++step) {
          const double expected = replicated.run().sums.loss;
          BOOST_TEST(shared.run().sums.loss == expected, boost::test_tools::tolerance(1e-5));
        }

        BOOST_TEST(relative_difference(shared.all_parameters(), replicated.all_parameters()) <
                   1e-5);
        BOOST_TEST(relative_difference(shared.statistics(), replicated.statistics()) < 1e-5);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(units_of_a_residual_network_are_reduced_in_one_order_on_all_ranks) {
  const int group = world->size() % 2 == 0 ? world->size() / 2 : 1;
  TrainRig::Options options{.global_batch = 24, .accumulate = 2, .device = true};
  TrainRig replicated(*world, options);
  options.shard = ShardMode::hybrid;
  options.shard_unit = {.by = ShardUnit::By::size, .smallest = 1};
  options.shard_group = group;
  Links links(group);
  options.device_comms = links.comms();
  TrainRig shared(*world, options);

  for (int step = 0; step < 3; ++step) {
    replicated.run();
    BOOST_TEST(shared.run().updated);
  }

  // Batch norms and their gradients amplify differences in the order of sums more than an MLP.
  BOOST_TEST(relative_difference(shared.all_parameters(), replicated.all_parameters()) < 1e-2);
}

BOOST_AUTO_TEST_CASE(steps_reduce_and_gather_in_memory_registered_with_nccl) {
  for (const ShardMode shard : {ShardMode::none, ShardMode::optimizer, ShardMode::grad}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const ElementType dtype : {ElementType::f32, ElementType::bf16}) {
        BOOST_TEST_CONTEXT("shard " << static_cast<int>(shard) << ", precision "
                                    << to_string(precision) << ", dtype "
                                    << static_cast<int>(dtype)) {
          TrainRig::Options options{.model = "mlp",
                                    .global_batch = 36,
                                    .accumulate = 2,
                                    .precision = precision,
                                    .reduce_dtype = dtype,
                                    .device = true,
                                    .accumulate_full_gradients = true};
          TrainRig replicated(*world, options);
          Links links(world->size());
          options.shard = shard;
          options.device_comms = links.comms();
          TrainRig rig(*world, options);
          for (int step = 0; step < 3; ++step) {
            replicated.run();
            BOOST_TEST(rig.run().updated);
          }

          BOOST_TEST(links.nccl->counts().submitted > 0);
          BOOST_TEST(links.nccl->counts().windows > 0);
          BOOST_TEST(links.nccl->counts().unknown == 0);
          BOOST_TEST(relative_difference(rig.all_parameters(), replicated.all_parameters()) <
                     rounding(precision, dtype));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(units_gathered_over_nccl_match_replicated_training) {
  for (const ShardMode shard : {ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      BOOST_TEST_CONTEXT("shard " << static_cast<int>(shard) << ", " << to_string(precision)) {
        TrainRig::Options options{.model = "mlp",
                                  .global_batch = 36,
                                  .precision = precision,
                                  .device = true,
                                  .shard_unit = {.by = ShardUnit::By::size, .smallest = 1}};
        TrainRig replicated(*world, options);
        Links links(world->size());
        options.shard = shard;
        options.device_comms = links.comms();
        TrainRig shared(*world, options);
        for (int step = 0; step < 3; ++step) {
          const double expected = replicated.run().sums.loss;
          BOOST_TEST(shared.run().sums.loss == expected, boost::test_tools::tolerance(1e-3));
        }

        BOOST_TEST(relative_difference(shared.all_parameters(), replicated.all_parameters()) <
                   rounding(precision, ElementType::f32));
      }
    }
  }
}

// Kernels, copies and collectives are in the streams of one device here, and run as late as events
// allow. If the host reads or overwrites a buffer too early, it gets wrong values. Only queued work
// may access the device's memory.
BOOST_AUTO_TEST_CASE(steps_with_queued_kernels_and_nccl_match_replicated_training) {
  struct Case {
    ShardMode shard;
    Precision precision;
    const char* model;
    bool synchronised = false;
  };
  for (const auto& [shard, precision, model, synchronised] :
       {Case{ShardMode::none, Precision::fp32, "mini-resnet", true},
        Case{ShardMode::optimizer, Precision::bf16, "mlp"},
        Case{ShardMode::grad, Precision::fp32, "mlp"},
        Case{ShardMode::full, Precision::bf16, "mini-resnet"},
        Case{ShardMode::grad, Precision::fp32, "mini-resnet", true}}) {
    BOOST_TEST_CONTEXT("shard " << static_cast<int>(shard) << ", " << to_string(precision)) {
      TrainRig::Options options{.model = model,
                                .global_batch = 12,
                                .accumulate = 2,
                                .precision = precision,
                                .synchronised = synchronised,
                                .device = true,
                                .shard_unit = {.by = ShardUnit::By::size, .smallest = 1}};
      TrainRig replicated(*world, options);
      Links links(world->size(), OnDevice::Wait::ordered);
      options.shard = shard;
      options.device_comms = links.comms();
      options.queues = std::make_shared<NcclHostQueues>(links.nccl->queues, links.compute);
      options.guard = gpu::HostMemoryGuard::on;
      TrainRig queued(*world, options);

      // The stand-in's collectives make progress only while each rank queries them, so no rank may
      // block in another collective until all are complete.
      std::vector<double> losses;
      for (int step = 0; step < 2; ++step) losses.push_back(queued.run().sums.loss);
      links.made.front()->synchronize();

      for (const double loss : losses) {
        BOOST_TEST(loss == replicated.run().sums.loss, boost::test_tools::tolerance(1e-2));
      }
      BOOST_TEST(relative_difference(queued.all_parameters(), replicated.all_parameters()) < 1e-2);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_read_behind_an_early_forward_asks_nccl_for_lost_ranks) {
  Links links(world->size(), OnDevice::Wait::ordered);
  TrainRig rig(*world,
               {.global_batch = 12,
                .synchronised = true,
                .device = true,
                .queues = std::make_shared<NcclHostQueues>(links.nccl->queues, links.compute),
                .device_comms = links.comms()});
  rig.run(NextAction::step);
  // An abort may leave no message of the stand-in under way, so all ranks end that forward first.
  const auto is_idle = [&] { return links.nccl->queues.is_idle(links.compute); };
  while (!is_idle()) std::this_thread::yield();
  int ended = 1;
  Request request = world->start_all_reduce(std::span(&ended, 1));
  while (!world->test(request)) static_cast<void>(is_idle());

  links.nccl->faults.error_after = 0;

  BOOST_CHECK_EXCEPTION(rig.state().await_gathers(), Error, [](const Error& error) {
    return std::string(error.what()).find("NCCL") != std::string::npos;
  });
  BOOST_TEST(links.nccl->counts().aborted > 0);
}

BOOST_AUTO_TEST_CASE(a_capture_contains_no_collective) {
  Links links(world->size(), OnDevice::Wait::ordered);
  const auto device =
      gpu::make_host_device(std::make_shared<NcclHostQueues>(links.nccl->queues, links.compute));
  const gpu::DeviceArray<float> values(*device, 8);

  BOOST_CHECK_EXCEPTION(
      (void)device->record([&] { links.comms().front()->all_reduce(values.span()); }),
      std::logic_error, [](const std::logic_error& error) {
        return std::string(error.what()).ends_with("during a capture");
      });
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
