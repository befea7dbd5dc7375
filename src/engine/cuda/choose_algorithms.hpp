#pragma once

#include "device.hpp"
#include "lockstep/engine/algorithm_cache.hpp"

#include <cstdint>
#include <string>

namespace lockstep::cuda {

/// For a network's training at that batch size: the device's fastest algorithms, as the text that
/// take_algorithms() takes on all ranks. What `cache` has is not timed again.
[[nodiscard]] std::string choose_algorithms(Device& device, const Graph& graph, Precision precision,
                                            std::int64_t batch_size, AlgorithmCache& cache);
void take_algorithms(Device& device, const std::string& text);

}  // namespace lockstep::cuda
