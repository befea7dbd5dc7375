#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "measure.hpp"

#include <numeric>
#include <span>
#include <vector>

namespace lockstep::doctor {
namespace {

constexpr std::size_t reduced_values = std::size_t{16} << 20;  ///< 64 MiB, like a large bucket
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
                            : fmt::format("{} and {}", cuda.peers.first, cuda.peers.second),
          .gpu_places = cuda.bus_ids.empty() ? std::vector<GpuPlace>{} : find_gpus(cuda.bus_ids)};
}

GpuProbe::GpuProbe(int local_rank, int local_size)
    : module_(load_cuda_module()),
      device_(
          module_.make_device({.local_rank = local_rank, .local_size = local_size, .plans = {}})),
      values_(*device_, reduced_values) {
  device_->clear(values_.data(), values_.bytes());
}

double GpuProbe::measure(std::chrono::duration<double> limit) {
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(limit);
  Rendezvous rendezvous;
  std::vector<int> all(static_cast<std::size_t>(rendezvous.size()));
  std::iota(all.begin(), all.end(), 0);
  const auto made =
      module_.make_nccl(*device_, rendezvous, std::span(&all, 1),
                        {.settings = nccl_settings(module_.nccl_version(), false, nccl_variables()),
                         .start_limit = timeout,
                         .wait_limit = timeout});
  const auto& nccl = made.front();
  const auto reduce = [&] {
    nccl->all_reduce_buffer({values_.data(), values_.size(), ElementType::f32}, ReduceOp::sum);
    nccl->synchronize();
  };
  reduce();
  const auto begin = Clock::now();
  for (int i = 0; i < repetitions; ++i) reduce();
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  const double ranks = rendezvous.size();
  return 2 * (ranks - 1) / ranks * static_cast<double>(values_.bytes()) * repetitions /
         seconds.count();
}

}  // namespace lockstep::doctor
