#pragma once

#include "lockstep/config/config.hpp"

#include <span>
#include <string>

namespace lockstep {

/// What one rank knows of its GPUs before the ranks agree.
struct RankDevices {
  std::string host;
  bool usable = false;      ///< it can compute on a GPU
  bool allotted = false;    ///< the scheduler gave this job GPUs on this host
  std::string reason = {};  ///< why it cannot
};
/// Of `--device auto`, for all ranks alike: a GPU where every rank has one, else the processor.
/// Error(usage) where some ranks alone have one, or GPUs were allotted and cannot be used.
[[nodiscard]] DeviceChoice decide_device(std::span<const RankDevices> ranks);

/// The GPU a rank has taken.
struct TakenDevice {
  std::string host;
  std::string uuid;
};
/// Error(usage) that names two ranks with one GPU and how to launch instead. For NCCL, which needs
/// a GPU of its own for each rank.
void require_own_devices(std::span<const TakenDevice> ranks);

/// Whether this process's environment says that the scheduler gave it GPUs (Slurm's variables).
[[nodiscard]] bool scheduler_allotted_devices();

}  // namespace lockstep
