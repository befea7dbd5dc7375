#pragma once

#include "lockstep/comm/communicator.hpp"

#include <memory>

namespace lockstep {

/// A communicator of one rank: every collective is the identity.
[[nodiscard]] std::unique_ptr<Communicator> make_self_communicator();

}  // namespace lockstep
