#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep {

/// Error(internal) unless `peer` is another rank of `comm`.
void require_peer(const Communicator& comm, int peer);

}  // namespace lockstep
