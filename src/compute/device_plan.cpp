#include "lockstep/compute/device_plan.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace lockstep {

DeviceChoice decide_device(std::span<const RankDevices> ranks) {
  const auto is_usable = [](const RankDevices& rank) { return rank.usable; };
  const auto without = std::find_if_not(ranks.begin(), ranks.end(), is_usable);
  if (without == ranks.end()) return DeviceChoice::cuda;
  const auto with = std::find_if(ranks.begin(), ranks.end(), is_usable);
  if (with != ranks.end()) {
    fail(ExitStatus::usage,
         "--device auto finds a GPU for rank {} ({}), but none for rank {} ({}): {}; start all "
         "ranks where there are GPUs, or say --device cpu",
         with - ranks.begin(), with->host, without - ranks.begin(), without->host, without->reason);
  }
  const auto allotted = std::find_if(ranks.begin(), ranks.end(),
                                     [](const RankDevices& rank) { return rank.allotted; });
  if (allotted != ranks.end()) {
    fail(ExitStatus::usage,
         "the scheduler gave rank {} ({}) GPUs, but --device auto can use none: {}; to leave them "
         "idle say --device cpu",
         allotted - ranks.begin(), allotted->host, allotted->reason);
  }
  return DeviceChoice::cpu;
}

void require_own_devices(std::span<const TakenDevice> ranks) {
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> owners;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [owner, is_new] = owners.try_emplace({ranks[rank].host, ranks[rank].uuid}, rank);
    if (is_new) continue;
    fail(ExitStatus::usage,
         "ranks {} and {} share {} of {} (NCCL needs a GPU for each rank); start one rank a GPU "
         "(srun --ntasks-per-node=GPUS --gpus-per-node=GPUS), or share it with --comm mpi",
         owner->second, rank, ranks[rank].uuid, ranks[rank].host);
  }
}

bool scheduler_allotted_devices() {
  constexpr std::array names{"SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE"};
  return std::any_of(names.begin(), names.end(), [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' && std::string_view(value) != "0";
  });
}

}  // namespace lockstep
