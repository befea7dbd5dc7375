#include "choose_device.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::gpu::cuda {

int choose_device(int local_rank, int local_size, int visible_devices) {
  if (visible_devices <= 0) {
    fail(ExitStatus::usage,
         "no GPU is visible to local rank {} (CUDA_VISIBLE_DEVICES or the job's allocation hides "
         "them); ask for GPUs, or use --device cpu",
         local_rank);
  }
  if (visible_devices == 1) return 0;
  if (visible_devices < local_size) {
    fail(ExitStatus::usage,
         "{} GPUs are fewer than the {} ranks on this host (each rank needs one); start {} ranks a "
         "host, or ask for {} GPUs",
         visible_devices, local_size, visible_devices, local_size);
  }
  return local_rank;
}

}  // namespace lockstep::gpu::cuda
