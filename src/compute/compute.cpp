#include "lockstep/compute/compute.hpp"

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/compute/convolution_plan.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/config/options.hpp"
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

ConvolutionChoices choose_convolutions(const Graph& graph, const ComputeOptions& options) {
  TrialCache cache(trial_cache_path());
  return plan_convolutions(graph,
                           {.algorithm = options.conv_algorithm,
                            .precision = options.precision,
                            .threads = options.threads,
                            .batch_size = options.conv_batch,
                            .known = options.convolutions},
                           cache)
      .choices;
}

class CpuCompute final : public Compute {
 public:
  CpuCompute(const Graph& graph, const ComputeOptions& options, Communicator& host) : host_(host) {
    collectively(host, [&] {
      if (host.rank() == 0) choices_ = choose_convolutions(graph, options);
    });
    choices_ = ConvolutionChoices::parse(broadcast_text(host, choices_.text()));
    collectively(host, [&] {
      engine_ = make_cpu_engine(graph, {.threads = options.threads,
                                        .tail_size = options.tail_size,
                                        .precision = options.precision,
                                        .sum_over_ranks = sum_over_ranks(options, host),
                                        .convolutions = choices_,
                                        .units = options.units});
    });
  }

  [[nodiscard]] Engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] std::string device_name() const override { return ""; }
  [[nodiscard]] Communicator& arena_communicator() noexcept override { return host_; }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config,
                                                          const ArenaLayout& layout,
                                                          const SumOverRanks& sum_norms) override {
    return lockstep::make_optimizer(config, layout, sum_norms);
  }
  [[nodiscard]] std::string convolutions() const override { return choices_.text(); }

 private:
  Communicator& host_;
  ConvolutionChoices choices_;
  std::unique_ptr<Engine> engine_;
};

const cuda::ModuleTable& load_on_all_ranks(Communicator& host) {
  const cuda::ModuleTable* table = nullptr;
  collectively(host, [&table] { table = &load_cuda_module(); });
  return *table;
}

/// The members are in the order in which they need each other.
class CudaCompute final : public Compute {
 public:
  CudaCompute(const Graph& graph, const ComputeOptions& options, const ProcessGrid& grid,
              Communicator& host)
      : module_(load_on_all_ranks(host)), host_(host) {
    collectively(host, [&] {
      // Algorithms that give the same bits in every run are taken by the library's own order, as
      // timing could choose others each time. Those that it would compile first, for fp32 weight
      // gradients of 16-bit values, are left out.
      device_ = module_.make_device({.local_rank = grid.local_rank,
                                     .local_size = grid.local_size,
                                     .plans = {.deterministic = options.deterministic,
                                               .timed_candidates = options.deterministic ? 0 : 8,
                                               .wide_weight_gradients = false}});
    });
    numa_node_ = module_.identify(*device_).numa_node;
    peers_ = probe_cuda().peers;
    choose_communicator(options, grid);
    collectively(host, [&] {
      engine_ = module_.make_engine(device_, graph,
                                    {.tail_size = options.tail_size,
                                     .units = options.units,
                                     .precision = options.precision,
                                     .sum_over_ranks = sum_over_ranks(options, host),
                                     .records = options.cuda_graph});
    });
  }

  [[nodiscard]] Engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] std::string device_name() const override { return module_.identify(*device_).uuid; }
  [[nodiscard]] Communicator& arena_communicator() noexcept override {
    return communicator_ ? *communicator_ : host_;
  }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config,
                                                          const ArenaLayout& layout,
                                                          const SumOverRanks& sum_norms) override {
    if (sum_norms && config.optimizer == OptimizerKind::lars) {
      fail(
          ExitStatus::usage,
          "--optimizer lars does not go with --shard on GPUs (its norms are taken of whole tensors "
          "there) drop one");
    }
    return module_.make_optimizer(device_, config, layout);
  }
  [[nodiscard]] std::string peer_note() const override {
    if (peers_.pairs == 0) return "";
    if (peers_.reaching == peers_.pairs) return "all GPUs of this host reach each other's memory";
    return fmt::format(
        "{} of {} pairs of this host's GPUs reach each other's memory; {} and {} do not",
        peers_.reaching, peers_.pairs, peers_.first, peers_.second);
  }
  [[nodiscard]] int numa_node() const noexcept override { return numa_node_; }

 private:
  void choose_communicator(const ComputeOptions& options, const ProcessGrid& grid) {
    if (!options.reduces) return;
    if (options.comm == CommChoice::automatic && host_.size() == 1) return;  // nothing to reduce
    if (options.comm == CommChoice::mpi) {
      if (host_.size() > 1) {
        communicator_ = module_.make_staged(*device_, make_mpi_communicator(), options.wait_limit);
      }
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
    communicator_ = module_.make_nccl(*device_, *roll_call_, {.wait_limit = options.wait_limit});
  }

  const cuda::ModuleTable& module_;
  Communicator& host_;
  std::shared_ptr<cuda::Device> device_;
  int numa_node_ = -1;
  PeerReach peers_;
  std::unique_ptr<RollCall> roll_call_;
  std::unique_ptr<DeviceCommunicator> communicator_;
  std::unique_ptr<Engine> engine_;
};

/// What one rank tells the others of its GPUs, as a text.
std::string device_note(const ProcessGrid& grid) {
  const CudaAvailability mine = probe_cuda();
  return fmt::format("{}\n{}\n{}", grid.host, scheduler_allotted_devices() ? "allotted" : "",
                     mine.available ? "" : mine.reason);
}

RankDevices read_device_note(std::string_view note) {
  const auto line = [&note] {
    const std::size_t end = note.find('\n');
    const std::string_view first = note.substr(0, end);
    note.remove_prefix(end + 1);
    return std::string(first);
  };
  RankDevices rank;
  rank.host = line();
  rank.allotted = !line().empty();
  rank.reason = note;
  rank.usable = rank.reason.empty();
  return rank;
}

DeviceChoice agree_on_device(DeviceChoice asked, const ProcessGrid& grid, Communicator& host) {
  if (asked != DeviceChoice::automatic) return asked;
  std::vector<RankDevices> ranks;
  for (const std::string& note : all_gather_text(host, device_note(grid))) {
    ranks.push_back(read_device_note(note));
  }
  return decide_device(ranks);
}

}  // namespace

std::unique_ptr<Compute> make_compute(const Graph& graph, const ComputeOptions& options,
                                      const ProcessGrid& grid, Communicator& host) {
  if (agree_on_device(options.device, grid, host) == DeviceChoice::cuda) {
    require_conv_algorithm(options.conv_algorithm, options.precision, DeviceChoice::cuda);
    if (options.groups) {
      fail(ExitStatus::usage,
           "--shard hybrid does not go with --device cuda (GPUs share out over all ranks in this "
           "version) take --shard full, or --device cpu");
    }
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
