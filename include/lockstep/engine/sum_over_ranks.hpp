#pragma once

#include <functional>
#include <span>

namespace lockstep {

/// Replaces values in host memory by their sums over all ranks, bit-identical on every rank. All
/// ranks call it in the same order with the same number of values.
using SumOverRanks = std::function<void(std::span<double>)>;

}  // namespace lockstep
