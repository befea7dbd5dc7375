#pragma once

namespace lockstep::cuda {

/// Which of the GPUs that this process sees it should use: the only one where a launcher shows each
/// task its own (or several ranks share one), else the one of the rank's place on its host.
/// Error(usage) where there are none, or several but fewer than ranks.
[[nodiscard]] int choose_device(int local_rank, int local_size, int visible_devices);

}  // namespace lockstep::cuda
