#pragma once

#include "device.hpp"
#include "lockstep/engine/algorithm_cache.hpp"

#include <cstdint>
#include <string>

namespace lockstep::cuda {

/// For a network's training at that batch size: algorithms for the device, as the text that
/// take_algorithms() takes on all ranks. What `known`, such a text of the run so far, has for it
/// holds, and what it has for others stays; then what `cache` has; the rest is timed.
[[nodiscard]] std::string choose_algorithms(Device& device, const Graph& graph, Precision precision,
                                            std::int64_t batch_size, const std::string& known,
                                            AlgorithmCache& cache);
void take_algorithms(Device& device, const std::string& text);

}  // namespace lockstep::cuda
