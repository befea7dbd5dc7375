#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

namespace lockstep::test {

/// Every operation, operator and element type against values computed one by one; the same suite
/// holds for each communicator. Collective. Fails through Boost.Test.
void check_communicator(Communicator& comm, const std::vector<std::size_t>& counts);

}  // namespace lockstep::test
