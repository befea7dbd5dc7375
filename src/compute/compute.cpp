#include "lockstep/compute/compute.hpp"

#include "compute_parts.hpp"
#include "lockstep/comm/mpi_all_reduce.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/compute/convolution_plan.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "run_choices.hpp"

#include <sstream>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

ConvolutionChoices choose_convolutions(const Graph& graph, const ComputeOptions& options) {
  TrialCache cache(trial_cache_path());
  const ConvolutionPlanOptions plan{
      .algorithm = options.conv_algorithm,
      .precision = options.precision,
      .threads = options.threads,
      .batch_size = options.conv_batch,
      .known = choices_of(cpu_choices(options.precision), options.convolutions)};
  ConvolutionChoices choices;
  for (const Graph* each : all_sizes(graph, options)) {
    choices.add(plan_convolutions(*each, plan, cache).choices);
  }
  return choices;
}

class CpuCompute final : public Compute {
 public:
  CpuCompute(const Graph& graph, const ComputeOptions& options, Communicator& host)
      : link_(host, options.reduces
                        ? link_options(options, options.comm)
                        : HostLinkOptions{.comm = CommChoice::mpi, .all_reduce = AllReduce::mpi}),
        groups_(host, options.group_size, link_options(options, options.comm)),
        kind_(cpu_choices(options.precision)),
        chosen_before_(options.convolutions) {
    collectively(host, [&] {
      if (host.rank() == 0) choices_ = choose_convolutions(graph, options);
    });
    choices_ = ConvolutionChoices::parse(broadcast_text(host, choices_.text()));
    if (options.all_reduce == AllReduce::mpi) set_mpi_all_reduce();
    SumOverRanks sum_over_ranks;
    if (options.synchronised_norms) {
      sum_over_ranks = [&host](std::span<double> values) { host.all_reduce(values); };
    }
    arenas_ = &watched(options, link_.get());
    collectively(host, [&] {
      engine_ = make_cpu_engine(graph, {.threads = options.threads,
                                        .tail_size = options.tail_size,
                                        .precision = options.precision,
                                        .sum_over_ranks = sum_over_ranks,
                                        .convolutions = choices_,
                                        .recompute = options.recompute,
                                        .units = options.units});
    });
  }

  [[nodiscard]] Engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] std::string device_name() const override { return ""; }
  [[nodiscard]] Communicator& arena_communicator() noexcept override { return *arenas_; }
  [[nodiscard]] Groups group_communicators() noexcept override { return groups_.get(); }
  [[nodiscard]] Groups host_group_communicators() noexcept override { return groups_.get(); }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config,
                                                          const ArenaLayout& layout,
                                                          const SumOverRanks& sum_norms) override {
    return lockstep::make_optimizer(config, layout, sum_norms);
  }
  [[nodiscard]] std::string convolutions() const override {
    return with_choices(kind_, choices_.text(), chosen_before_);
  }
  [[nodiscard]] std::string all_reduce() const override { return link_.all_reduce(); }
  [[nodiscard]] std::string backend() const override { return onednn_description(); }
  [[nodiscard]] std::vector<std::string> notes() const override {
    const std::string of_groups = link_.is_shared() ? "" : groups_.way();
    const std::string way = of_groups.empty() ? link_.way("all ranks") : of_groups;
    if (way.empty()) return {};
    return {"gradients: summed " + way};
  }

 private:
  HostLink link_;
  HostGroups groups_;
  Communicator* arenas_ = nullptr;
  ChoiceKind kind_;
  std::string chosen_before_;  ///< rank 0's, from the run so far
  ConvolutionChoices choices_;
  std::unique_ptr<Engine> engine_;
};

/// What one rank tells the others about its GPUs, as text.
std::string device_note(const ProcessGrid& grid) {
  const CudaAvailability mine = probe_cuda();
  return fmt::format("{}\n{}\n{}", grid.host, scheduler_allotted_devices() ? "allotted" : "",
                     mine.available ? "" : mine.reason);
}

RankDevices read_device_note(const std::string& note) {
  std::istringstream lines(note);
  std::string allotted;
  RankDevices rank;
  std::getline(std::getline(lines, rank.host), allotted);
  std::getline(lines, rank.reason, '\0');
  rank.allotted = !allotted.empty();
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

/// Error(usage) if options are `together` that do not go together.
void refuse(bool together, const char* text) {
  if (together) fail(ExitStatus::usage, "{}", text);
}

}  // namespace

std::unique_ptr<Compute> make_compute(const Graph& graph, const ComputeOptions& options,
                                      const ProcessGrid& grid, Communicator& host) {
  const bool reduces_by_choice = options.all_reduce != AllReduce::automatic;
  const bool progresses_by_choice = options.comm_progress != CommProgress::automatic;
  const bool shared = options.comm == CommChoice::shared;
  refuse(options.all_reduce == AllReduce::mpi && options.comm_progress == CommProgress::thread,
         "--comm-progress thread does not go with --allreduce mpi (the thread progresses messages "
         "of Lockstep's own schedules); drop one of them");
  if (agree_on_device(options.device, grid, host) == DeviceChoice::cuda) {
    require_conv_algorithm(options.conv_algorithm, options.precision, DeviceChoice::cuda);
    require_recompute(options.recompute, DeviceChoice::cuda);
    refuse(shared,
           "--comm shared does not go with --device cuda (GPUs' memory is reduced by NCCL, or by "
           "MPI through the host); drop it");
    refuse(options.comm != CommChoice::mpi && reduces_by_choice,
           "--allreduce does not go with NCCL (it chooses its own algorithms); drop it, or use "
           "--comm mpi");
    refuse(options.comm != CommChoice::mpi && progresses_by_choice,
           "--comm-progress does not go with NCCL (GPUs progress its messages); drop it, or use "
           "--comm mpi");
    return make_cuda_compute(graph, options, grid, host);
  }
  refuse(options.decode == DecodeChoice::gpu,
         "--decode gpu does not go with --device cpu (the GPU that computes decodes); use a GPU, "
         "or --decode cpu");
  refuse(shared && reduces_by_choice,
         "--allreduce does not go with --comm shared (it says how ranks of several hosts sum); "
         "drop one of them");
  refuse(shared && progresses_by_choice,
         "--comm-progress does not go with --comm shared (there are no messages between hosts); "
         "drop one of them");
  refuse(options.comm == CommChoice::nccl,
         "--comm nccl does not go with --device cpu (NCCL reduces the memory of GPUs); leave it "
         "out, or use a GPU");
  if (options.before_host_memory) options.before_host_memory();
  return std::make_unique<CpuCompute>(graph, options, host);
}

}  // namespace lockstep
