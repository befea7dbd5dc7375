#pragma once

namespace lockstep::gpu::cuda {

/// Index of the GPU to use among those that this process sees: the only one, if the launcher shows
/// each task its own or ranks share one; else the one at the rank's index on its host. Error(usage)
/// if there are none, or several but fewer than ranks.
[[nodiscard]] int choose_device(int local_rank, int local_size, int visible_devices);

}  // namespace lockstep::gpu::cuda
