#pragma once

#include <functional>
#include <span>

namespace lockstep {

/// Replaces values in host memory by their sums over all ranks, with the same bits on each. All
/// ranks call it in the same order with equally many values.
using SumOverRanks = std::function<void(std::span<double>)>;

}  // namespace lockstep
