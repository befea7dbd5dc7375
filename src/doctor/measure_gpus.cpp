#include "../compute/module_interface.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "measure.hpp"

namespace lockstep::doctor {
namespace {

constexpr std::size_t reduced_values = std::size_t{16} << 20;  ///< 64 MiB, as large buckets are
constexpr int repetitions = 5;

}  // namespace

RankFacts measure_rank(int rank, const std::string& node) {
  const CudaAvailability cuda = probe_cuda();
  return {.rank = rank,
          .node = node,
          .cores = affinity_mask(),
          .node_cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .gpu_usable = cuda.available,
          .gpus_allotted = scheduler_allotted_devices(),
          .gpus = cuda.devices,
          .gpu_reason = cuda.reason,
          .gpu_pairs = cuda.peers.pairs,
          .gpu_pairs_reaching = cuda.peers.reaching,
          .gpus_apart = cuda.peers.first < 0
                            ? ""
                            : fmt::format("{} and {}", cuda.peers.first, cuda.peers.second)};
}

NcclFacts measure_nccl(int local_rank, int local_size, const std::string& node,
                       Communicator& host) {
  NcclFacts facts;
  try {
    const cuda::ModuleTable& module = load_cuda_module();
    std::shared_ptr<cuda::Device> device;
    collectively(host, [&] {
      device =
          module.make_device({.local_rank = local_rank, .local_size = local_size, .plans = {}});
    });
    const auto uuids = all_gather_text(host, module.identify(*device).uuid);
    const auto nodes = all_gather_text(host, node);
    std::vector<TakenDevice> taken;
    for (std::size_t i = 0; i < uuids.size(); ++i) {
      taken.push_back({.host = nodes[i], .uuid = uuids[i]});
    }
    require_own_devices(taken);
    RollCall roll_call;
    const auto nccl = module.make_nccl(*device, roll_call, NcclCommunicatorOptions{}.wait_limit);
    const cuda::DeviceArray<float> values(*device, reduced_values);
    device->clear(values.data(), values.bytes());
    const auto reduce = [&] {
      nccl->all_reduce_buffer({values.data(), values.size(), ElementType::f32}, ReduceOp::sum);
      nccl->synchronize();
    };
    reduce();
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions; ++i) reduce();
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    const double ranks = host.size();
    facts.bandwidth = 2 * (ranks - 1) / ranks * static_cast<double>(values.bytes()) * repetitions /
                      seconds.count();
  } catch (const Error& error) {
    facts.error = error.what();
  }
  return facts;
}

}  // namespace lockstep::doctor
