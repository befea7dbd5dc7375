#pragma once

#include "lockstep/comm/communicator.hpp"

#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

/// Axis of the ranks that keep the same shard of the state.
inline constexpr std::string_view replica_axis = "replicas";
/// Axis of the ranks of a shard group, which together keep the state.
inline constexpr std::string_view shard_axis = "shards";

/// The ranks of a job as a grid. Neighbors on the last axis are consecutive ranks. Pure, apart from
/// split().
class Mesh final {
 public:
  struct Axis {
    std::string_view name;  ///< of static storage
    int size = 1;
  };
  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  [[nodiscard]] int size() const noexcept;
  /// The ranks at the same place as `rank` on all axes except `axes`, ascending.
  [[nodiscard]] std::vector<int> ranks(int rank,
                                       std::initializer_list<std::string_view> axes) const;
  /// Splits `job`, which has size() ranks, into communicators over ranks(). Collective over `job`.
  [[nodiscard]] std::unique_ptr<Communicator> split(
      Communicator& job, std::initializer_list<std::string_view> axes) const;

 private:
  std::vector<Axis> axes_;  ///< the last varies fastest
};

/// The mesh of data parallelism: every rank has samples of its own. `group_size`: ranks of a shard
/// group, a divisor of `ranks`; without hybrid sharding, all ranks.
[[nodiscard]] inline Mesh data_mesh(int ranks, int group_size) {
  return Mesh({{replica_axis, ranks / group_size}, {shard_axis, group_size}});
}

}  // namespace lockstep
