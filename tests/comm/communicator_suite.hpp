#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

namespace lockstep::test {

/// Compares every operation, operator and element type with values computed one by one. All
/// communicators must pass it. Collective; failures are reported by Boost.Test.
void check_communicator(Communicator& comm, const std::vector<std::size_t>& counts);

/// check_communicator() calls both.
/// Random patterns of messages of each type, with these counts and larger ones.
void check_messages(Communicator& comm, const std::vector<std::size_t>& counts);
/// Parts of a communicator, and parts of these, beside each other.
void check_splits(Communicator& comm);

/// Starts many all-reduces, of fp32 and of integers in turn, and ends them in another order.
void check_many_requests(Communicator& comm);
/// Starts one all-reduce on each, and waits for them in an order that differs between ranks.
void check_requests_of_several(Communicator& one, Communicator& other, Communicator& third);

}  // namespace lockstep::test
