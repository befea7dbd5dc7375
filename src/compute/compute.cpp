#include "lockstep/compute/compute.hpp"

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "module_interface.hpp"

#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// By the host, for batch norms; empty where they take this rank's samples alone.
SumOverRanks sum_over_ranks(const ComputeOptions& options, Communicator& host) {
  if (!options.synchronised_norms) return {};
  return [&host](std::span<double> values) { host.all_reduce(values); };
}

class CpuCompute final : public Compute {
 public:
  CpuCompute(const Graph& graph, const ComputeOptions& options, Communicator& host)
      : host_(host),
        engine_(make_cpu_engine(graph, {.threads = options.threads,
                                        .tail_size = options.tail_size,
                                        .precision = options.precision,
                                        .sum_over_ranks = sum_over_ranks(options, host)})) {}

  [[nodiscard]] Engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] std::string device_name() const override { return ""; }
  [[nodiscard]] Communicator& arena_communicator() noexcept override { return host_; }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config) override {
    return lockstep::make_optimizer(config, engine_->layout());
  }

 private:
  Communicator& host_;
  std::unique_ptr<Engine> engine_;
};

/// The members are in the order in which they need each other.
class CudaCompute final : public Compute {
 public:
  CudaCompute(const Graph& graph, const ComputeOptions& options, const ProcessGrid& grid,
              Communicator& host)
      : module_(load_cuda_module()), host_(host) {
    collectively(host, [&] {
      // Algorithms are taken by the library's own order and give the same bits in every run; those
      // that it would compile first, for fp32 weight gradients of 16-bit values, are left out.
      device_ =
          module_.make_device({.local_rank = grid.local_rank,
                               .local_size = grid.local_size,
                               .plans = {.deterministic = true, .wide_weight_gradients = false}});
    });
    choose_communicator(options, grid);
    collectively(host, [&] {
      engine_ = module_.make_engine(device_, graph,
                                    {.tail_size = options.tail_size,
                                     .precision = options.precision,
                                     .sum_over_ranks = sum_over_ranks(options, host)});
    });
  }

  [[nodiscard]] Engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] std::string device_name() const override { return module_.identify(*device_).uuid; }
  [[nodiscard]] Communicator& arena_communicator() noexcept override {
    return communicator_ ? *communicator_ : host_;
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config) override {
    return module_.make_optimizer(device_, config, engine_->layout());
  }

 private:
  void choose_communicator(const ComputeOptions& options, const ProcessGrid& grid) {
    if (!options.reduces) return;
    if (options.comm == CommChoice::automatic && host_.size() == 1) return;  // nothing to reduce
    if (options.comm == CommChoice::mpi) {
      if (host_.size() > 1) communicator_ = module_.make_staged(*device_, make_mpi_communicator());
      return;
    }
    const auto uuids = all_gather_text(host_, module_.identify(*device_).uuid);
    const auto hosts = all_gather_text(host_, grid.host);
    std::vector<TakenDevice> taken;
    for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
      taken.push_back({.host = hosts[rank], .uuid = uuids[rank]});
    }
    require_own_devices(taken);
    roll_call_ = std::make_unique<RollCall>();
    communicator_ = module_.make_nccl(*device_, *roll_call_);
  }

  const cuda::ModuleTable& module_;
  Communicator& host_;
  std::shared_ptr<cuda::Device> device_;
  std::unique_ptr<RollCall> roll_call_;
  std::unique_ptr<DeviceCommunicator> communicator_;
  std::unique_ptr<Engine> engine_;
};

DeviceChoice agree_on_device(DeviceChoice asked, const ProcessGrid& grid, Communicator& host) {
  if (asked == DeviceChoice::cuda) {
    collectively(host, [] { static_cast<void>(load_cuda_module()); });
  }
  if (asked != DeviceChoice::automatic) return asked;
  const CudaAvailability mine = probe_cuda();
  const auto hosts = all_gather_text(host, grid.host);
  const auto reasons = all_gather_text(host, mine.available ? std::string() : mine.reason);
  const auto allotted = all_gather_text(host, scheduler_allotted_devices() ? "yes" : "");
  std::vector<RankDevices> ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    ranks.push_back({.host = hosts[rank],
                     .usable = reasons[rank].empty(),
                     .allotted = !allotted[rank].empty(),
                     .reason = reasons[rank]});
  }
  return decide_device(ranks);
}

}  // namespace

std::unique_ptr<Compute> make_compute(const Graph& graph, const ComputeOptions& options,
                                      const ProcessGrid& grid, Communicator& host) {
  if (agree_on_device(options.device, grid, host) == DeviceChoice::cuda) {
    return std::make_unique<CudaCompute>(graph, options, grid, host);
  }
  if (options.comm == CommChoice::nccl) {
    fail(ExitStatus::usage,
         "--comm nccl does not go with --device cpu (NCCL reduces the memory of GPUs) leave it "
         "out, or use a GPU");
  }
  return std::make_unique<CpuCompute>(graph, options, host);
}

}  // namespace lockstep
