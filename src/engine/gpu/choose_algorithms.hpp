#pragma once

#include "device.hpp"
#include "lockstep/engine/algorithm_cache.hpp"

#include <cstdint>
#include <string>

namespace lockstep::gpu {

/// Chooses the device's convolution algorithms for a network's training at that batch size. Returns
/// the text to pass to set_algorithms() on all ranks. Uses `known` (the run's text so far) first,
/// then `cache`, and times the rest. Entries of `known` for other devices are kept.
[[nodiscard]] std::string choose_algorithms(Device& device, const Graph& graph, Precision precision,
                                            std::int64_t batch_size, const std::string& known,
                                            AlgorithmCache& cache);
void set_algorithms(Device& device, const std::string& text);

}  // namespace lockstep::gpu
