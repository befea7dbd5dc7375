#pragma once

#include "comm/nccl_stand_in.hpp"
#include "comm/test_seeds.hpp"
#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/staged_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <mpi.h>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

inline std::vector<std::vector<int>> sets_of(const Rendezvous& rendezvous, int group_size) {
  const Mesh mesh = data_mesh(rendezvous.size(), group_size);
  const int rank = rendezvous.rank();
  return {mesh.ranks(rank, {replica_axis, shard_axis}), mesh.ranks(rank, {shard_axis}),
          mesh.ranks(rank, {replica_axis})};
}

/// The possible sizes of shard groups in a job of this many ranks.
inline std::vector<int> group_sizes(int ranks) {
  std::vector<int> sizes;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

/// The values that a rank of a shard group passes to its communicators in a step, by unit.
struct Unit {
  Unit(int group, int rank, std::size_t part)
      : gradients(part * static_cast<std::size_t>(group), -1.0F),
        sums(part, -1.0F),
        weights(gradients.size(), -1.0F),
        own(std::span(weights).subspan(part * static_cast<std::size_t>(rank), part)) {}
  std::vector<float> gradients;
  std::vector<float> sums;
  std::vector<float> weights;
  std::span<float> own;
};

/// One rank with a device, and its communicators over all ranks, its shard group and its replicas.
struct GroupsRig {
  GroupsRig(int group_size, std::chrono::milliseconds limit_of_waits)
      : limit(limit_of_waits), sets(sets_of(rendezvous, group_size)), nccl(sets) {
    nccl.vary(soak_seed());
    BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
    for (std::size_t part : {100U, 7U, 33U}) {
      units.emplace_back(group_size, rendezvous.rank() % group_size, part);
    }
  }
  void make() {
    comms = make_nccl_communicators(nccl, rendezvous, compute, sets,
                                    {.settings = {.text = settings},
                                     .start_limit = limit,
                                     .limit_option = "--limit",
                                     .wait_limit = limit,
                                     .ranks_per_id = ranks_per_id,
                                     .progress = &progress});
    nccl.count_from_here();
  }
  /// Uses communicators that stage through host memory instead.
  void make_staged() {
    const auto mpi = make_mpi_communicator();
    for (const auto& ranks : sets) {
      comms.push_back(
          make_staged_communicator(nccl, mpi->split(ranks.front(), 0), compute,
                                   {.wait_limit = limit, .rank = rank(), .progress = &progress}));
    }
  }
  [[nodiscard]] std::optional<Error> error_of(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    std::optional<Error> error;
    try {
      work();
    } catch (const Error& thrown) {
      error = thrown;
    }
    BOOST_TEST((std::chrono::steady_clock::now() - begin < std::chrono::seconds(20)));
    return error;
  }
  [[nodiscard]] DeviceCommunicator& all() { return *comms[0]; }
  [[nodiscard]] DeviceCommunicator& group() { return *comms[1]; }
  [[nodiscard]] DeviceCommunicator& replicas() { return *comms[2]; }
  [[nodiscard]] int rank() const { return rendezvous.rank(); }
  [[nodiscard]] int last() const { return rendezvous.size() - 1; }
  [[nodiscard]] bool is_last() const { return rank() == last(); }
  [[nodiscard]] static MutableBuffer there(std::span<float> values) {
    return {device_address(values.data()), values.size(), ElementType::f32};
  }
  [[nodiscard]] static ConstBuffer there_const(std::span<const float> values) {
    return {device_address(values.data()), values.size(), ElementType::f32};
  }

  /// Queues a step like ShardedState: reduces in the group, then over the replicas, while gathers
  /// run, and reduces the tail over all ranks.
  void queue_step() {
    std::vector<Request> in_group;
    std::vector<Request> over_replicas;
    for (Unit& unit : units) {
      nccl.queues.launch(compute, [&unit] { std::ranges::fill(unit.gradients, 1.0F); });
      in_group.push_back(group().start_reduce_scatter_buffer(there_const(unit.gradients),
                                                             there(unit.sums), ReduceOp::sum));
    }
    std::ranges::fill(tail, 1.0F);
    Request tail_sum = all().start_all_reduce_buffer(there(tail), ReduceOp::sum);
    for (std::size_t i = 0; i < units.size(); ++i) {
      group().wait(in_group[i]);
      over_replicas.push_back(
          replicas().start_all_reduce_buffer(there(units[i].sums), ReduceOp::sum));
    }
    std::vector<Request> gathers;
    for (std::size_t i = 0; i < units.size(); ++i) {
      Unit& unit = units[i];
      replicas().wait(over_replicas[i]);
      nccl.queues.launch(compute, [&unit] {
        std::ranges::transform(unit.sums, unit.own.begin(), [](float sum) { return -sum; });
      });
      gathers.push_back(
          group().start_all_gather_buffer(there_const(unit.own), there(unit.weights)));
    }
    all().wait(tail_sum);
    for (Request& gather : gathers) group().wait(gather);
  }

  Rendezvous rendezvous;
  std::chrono::milliseconds limit;
  std::vector<std::vector<int>> sets;
  std::vector<Unit> units;  // declared before `nccl`, which the buffers must outlive
  std::array<float, 5> tail{};
  int ranks_per_id = 128;
  std::string settings = "NCCL 2.28.9";
  DeviceProgress progress;
  NcclStandIn nccl;
  CudaStream compute = nullptr;
  std::vector<std::unique_ptr<DeviceCommunicator>> comms;
};

/// Size of a shard group: half the ranks if their number is even, so that there are two groups;
/// else 1.
inline int usual_size() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks % 2 == 0 ? ranks / 2 : 1;
}

}  // namespace lockstep::test
