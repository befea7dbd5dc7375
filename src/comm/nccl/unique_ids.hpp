#pragma once

#include "lockstep/comm/nccl_api.hpp"
#include "lockstep/comm/rendezvous.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The first of `ranks` ranks in block number `block` when they are divided into `blocks` blocks,
/// as NCCL assigns ranks to unique ids: the first ones are one longer. Pure.
[[nodiscard]] constexpr int first_of_block(int block, int blocks, int ranks) noexcept {
  const int longer = ranks % blocks;
  return block * (ranks / blocks) + (block < longer ? block : longer);
}
/// Number of ids for a communicator of `ranks` ranks: one for each `ranks_per_id`. Pure.
[[nodiscard]] constexpr int id_count(int ranks, int ranks_per_id) noexcept {
  return (ranks + ranks_per_id - 1) / ranks_per_id;
}

/// The unique ids of this rank's communicators. Each id is made by one rank, its leader, whose NCCL
/// then serves the ranks that connect through it.
class UniqueIds final {
 public:
  /// Adds a communicator of these job ranks, with `count` ids made by the first ranks of as many
  /// blocks. All ranks of the job must add communicators with the same counts.
  void add(std::span<const int> ranks, int count);
  /// Makes this rank's ids and receives the others'. Collective over the job. `make` returns an
  /// error's text, empty if the id was made.
  void exchange(Rendezvous& rendezvous, const Rendezvous::Place& place,
                const std::function<std::string(NcclUniqueId&)>& make);
  /// The ids of the communicator that was added as number `which`.
  [[nodiscard]] std::span<const NcclUniqueId> of(std::size_t which) const {
    return std::span(ids_).subspan(begins_[which], begins_[which + 1] - begins_[which]);
  }

 private:
  std::vector<int> leaders_;  ///< by id
  std::vector<NcclUniqueId> ids_;
  std::vector<std::size_t> begins_ = {0};
};

}  // namespace lockstep
