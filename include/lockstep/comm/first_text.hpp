#pragma once

#include "lockstep/comm/communicator.hpp"

#include <string>

namespace lockstep {

/// Returns the text of the lowest rank that has one on every rank; empty if none has. Collective.
[[nodiscard]] std::string first_text(Communicator& comm, const std::string& mine);

}  // namespace lockstep
