#pragma once

#include "comm/stand_in_queues.hpp"
#include "lockstep/comm/device_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace lockstep::test {

/// The collectives of a sharded training step of one rank, with their buffers.
class ShardedStep final {
 public:
  ShardedStep(const Communicator& comm, std::size_t shard)
      : ranks_(static_cast<std::size_t>(comm.size())),
        shard_(shard),
        begin_(static_cast<std::size_t>(comm.rank()) * shard) {}

  [[nodiscard]] Request reduce(Communicator& comm) {
    return comm.start_reduce_scatter_buffer(
        {device_address(gradients.data()), gradients.size(), ElementType::f32},
        {device_address(sums.data()), sums.size(), ElementType::f32}, ReduceOp::sum);
  }
  /// Starts an all-gather in place.
  [[nodiscard]] Request gather(Communicator& comm) {
    return comm.start_all_gather_buffer(
        {device_address(own_weights().data()), shard_, ElementType::f32},
        {device_address(weights.data()), weights.size(), ElementType::f32});
  }
  [[nodiscard]] std::span<float> own_weights() {
    return std::span(weights).subspan(begin_, shard_);
  }

 private:
  std::size_t ranks_;
  std::size_t shard_;
  std::size_t begin_;

 public:
  std::vector<float> gradients = std::vector<float>(ranks_ * shard_, -1.0F);
  std::vector<float> sums = std::vector<float>(shard_, -1.0F);
  std::vector<float> weights = std::vector<float>(ranks_ * shard_, -1.0F);
};

/// Checks that each collective of the step runs after the work that computes its input and before
/// the work that reads its output, while an all-reduce is in flight. Collective.
inline void check_sharded_step(DeviceCommunicator& comm, StandInQueues& queues,
                               CudaStream compute) {
  const auto ranks = static_cast<float>(comm.size());
  ShardedStep step(comm, 100);
  std::vector<float> norms(7, 1.0F);
  std::vector<float> seen;
  queues.delays.kernel = 50;
  queues.delays.copy = 20;

  queues.launch(compute, [&] { std::ranges::fill(step.gradients, 1.0F); });
  Request reduction = step.reduce(comm);
  const bool still_to_be_computed = step.gradients[0] == -1.0F;
  Request beside = comm.start_all_reduce_buffer(
      {device_address(norms.data()), norms.size(), ElementType::f32}, ReduceOp::sum);
  comm.wait(reduction);
  queues.launch(compute, [&] {
    std::ranges::transform(step.sums, step.own_weights().begin(), [](float sum) { return -sum; });
  });
  Request gathering = step.gather(comm);
  comm.wait(gathering);
  queues.launch(compute, [&] { seen = step.weights; });
  comm.wait(beside);
  comm.synchronize();

  BOOST_TEST(still_to_be_computed);
  BOOST_TEST((step.sums == std::vector<float>(100, ranks)));
  BOOST_TEST((step.gradients == std::vector<float>(step.gradients.size(), 1.0F)));
  BOOST_TEST((seen == std::vector<float>(step.weights.size(), -ranks)));
  BOOST_TEST((norms == std::vector<float>(7, ranks)));
}

}  // namespace lockstep::test
