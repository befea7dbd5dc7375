#pragma once

#include "lockstep/comm/communicator.hpp"

#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

/// Ranks at the same place on all other axes keep the same shard of the state.
inline constexpr std::string_view replica_axis = "replicas";
/// Ranks at the same place on all other axes are a shard group: together they keep the state.
inline constexpr std::string_view shard_axis = "shards";

/// The ranks of a job as a grid. The places on the last axis are consecutive ranks. Pure, apart
/// from split().
class Mesh final {
 public:
  struct Axis {
    std::string_view name;  ///< of static storage
    int size = 1;
  };
  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  [[nodiscard]] int size() const noexcept;
  /// The ranks that differ from `rank` at most in their places on `axes`, ascending.
  [[nodiscard]] std::vector<int> ranks(int rank,
                                       std::initializer_list<std::string_view> axes) const;
  /// The communicator over those ranks of `job`, which has size() ranks. Collective over `job`.
  [[nodiscard]] std::unique_ptr<Communicator> split(
      Communicator& job, std::initializer_list<std::string_view> axes) const;

 private:
  std::vector<Axis> axes_;  ///< the last varies fastest
};

/// The axes of data parallelism: every rank has samples of its own. Shard groups have `group_size`
/// ranks, which divides `ranks`; without hybrid sharding, all.
[[nodiscard]] inline Mesh data_mesh(int ranks, int group_size) {
  return Mesh({{replica_axis, ranks / group_size}, {shard_axis, group_size}});
}

}  // namespace lockstep
