#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/engine.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Compares what all ranks hold: parameters and running statistics, which are the same bits
/// everywhere unless a memory, a device or a program failed.
class ReplicaCheck final {
 public:
  /// `hosts` by rank. Everything outlives it.
  ReplicaCheck(Engine& engine, Communicator& comm, std::vector<std::string> hosts);

  /// Collective; `step` has just been taken. Error(internal), on all ranks alike, that names the
  /// ranks whose bits are not those of most, with their hosts, and the step of the last check that
  /// found all alike (that of the run's begin, before one).
  void run(std::int64_t step);

 private:
  [[nodiscard]] std::uint64_t checksum();

  Engine& engine_;
  Communicator& comm_;
  std::vector<std::string> hosts_;
  AlignedBuffer<float> piece_;
  std::int64_t alike_at_ = -1;  ///< -1: before the first check
};

/// Pure: the ranks whose checksum is not that of most, ascending; empty where all are alike. Where
/// no value is that of more than half of the ranks, all of them.
[[nodiscard]] std::vector<int> differing_ranks(std::span<const std::uint64_t> checksums);

}  // namespace lockstep
