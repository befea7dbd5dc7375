#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

namespace lockstep::test {

/// Compares every operation, operator and element type with values computed one by one. All
/// communicators must pass it. Collective; failures are reported by Boost.Test.
void check_communicator(Communicator& comm, const std::vector<std::size_t>& counts);

}  // namespace lockstep::test
