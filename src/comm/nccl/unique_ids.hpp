#pragma once

#include "lockstep/comm/nccl_api.hpp"
#include "lockstep/comm/rendezvous.hpp"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The ranks that make the unique ids of a communicator of `ranks` ranks, one id for each
/// `ranks_per_id`. NCCL divides the ranks into as many blocks, of which the first may be one rank
/// longer; the first rank of each block makes the id through which the block starts. Pure.
[[nodiscard]] std::vector<int> id_leaders(int ranks, int ranks_per_id);

/// Id number k is made by rank leaders[k]. Collective; `mine`: whether this rank can start so far.
/// `make` returns an error's text, empty if it has made the id; after an error all ranks throw.
[[nodiscard]] std::vector<NcclUniqueId> exchange_unique_ids(
    Rendezvous& rendezvous, const Rendezvous::Place& place, Rendezvous::Outcome mine,
    std::span<const int> leaders, const std::function<std::string(NcclUniqueId&)>& make);

}  // namespace lockstep
