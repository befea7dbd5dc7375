#pragma once

#include "lockstep/config/option_types.hpp"

#include <span>
#include <string>

namespace lockstep {

/// What one rank knows about its GPUs before the ranks agree.
struct RankDevices {
  std::string host;
  bool usable = false;      ///< the rank can compute on a GPU
  bool allotted = false;    ///< the scheduler gave this job GPUs on this host
  std::string reason = {};  ///< why it cannot
};
/// The device of `--device auto` for all ranks: a GPU if every rank has one, else the CPU.
/// Error(usage) if only some ranks have one, or if allotted GPUs cannot be used.
[[nodiscard]] DeviceChoice decide_device(std::span<const RankDevices> ranks);

/// The GPU that a rank uses.
struct TakenDevice {
  std::string host;
  std::string uuid;
};
/// Error(usage) if two ranks share a GPU, naming them and how to launch instead. NCCL needs a
/// separate GPU for each rank.
void require_own_devices(std::span<const TakenDevice> ranks);

/// Whether this process's environment says that the scheduler gave it GPUs (Slurm's variables).
[[nodiscard]] bool scheduler_allotted_devices();

}  // namespace lockstep
