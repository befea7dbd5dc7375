#include "cache_file.hpp"
#include "compute_parts.hpp"
#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/nccl_settings.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/compute/cuda_module.hpp"
#include "lockstep/compute/device_plan.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/algorithm_cache.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/engine/norm_exchange.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "module_interface.hpp"
#include "run_choices.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

const gpu::ModuleTable& load_on_all_ranks(Communicator& host) {
  const gpu::ModuleTable* table = nullptr;
  collectively(host, [&table] { table = &load_cuda_module(); });
  return *table;
}

/// The fastest convolution algorithms of GPUs, on disk.
class AlgorithmFile final : public AlgorithmCache {
 public:
  [[nodiscard]] std::optional<std::string> find(const std::string& key) override {
    return file_.find(key);
  }
  void add(const std::string& key, const std::string& algorithm) override {
    file_.add(key, algorithm);
    ++added_;
  }
  void save() { file_.save(); }
  [[nodiscard]] int added() const noexcept { return added_; }

 private:
  int added_ = 0;
  CacheFile file_{
      cache_path("gpu-convolutions.tsv"),
      {.header = "# GPU and library, convolution, fastest algorithm; may be deleted\n"}};
};

/// Members are in the order of their dependencies.
class CudaCompute final : public Compute, private NormExchange {
 public:
  CudaCompute(const Graph& graph, const ComputeOptions& options, const ProcessGrid& grid,
              Communicator& host)
      : module_(load_on_all_ranks(host)),
        host_(host),
        mesh_(data_mesh(host.size(), options.group_size == 0 ? host.size() : options.group_size)),
        has_groups_(options.group_size != 0 && options.group_size != host.size()),
        groups_(host, options.group_size, link_options(options, CommChoice::mpi)) {
    // The threads of CUDA and NCCL inherit the cores of this one, which may be pinned to one of
    // them.
    allow_cores(options.cores);
    collectively(host, [&] {
      device_ = module_.make_device(
          {.local_rank = grid.local_rank,
           .local_size = grid.local_size,
           .plans = {.deterministic = options.deterministic, .timed_candidates = 8},
           .exchanges_by_nccl = uses_nccl(options)});
    });
    agree_on_algorithms(graph, options);
    peers_ = probe_cuda().peers;
    choose_communicator(options, grid);
    arenas_ = &watched(options, over_all_ranks());
    collectively(host, [&] {
      engine_ = module_.make_engine(device_, graph,
                                    {.tail_size = options.tail_size,
                                     .units = options.units,
                                     .precision = options.precision,
                                     .gpu = module_.identify(*device_).gpu,
                                     .norms = options.synchronised_norms ? this : nullptr,
                                     .records = options.cuda_graph,
                                     .recompute = options.recompute,
                                     .decodes = options.decode == DecodeChoice::gpu});
    });
  }

  [[nodiscard]] Engine& engine() noexcept override { return *engine_; }
  [[nodiscard]] std::string device_name() const override { return module_.identify(*device_).uuid; }
  [[nodiscard]] Communicator& arena_communicator() noexcept override { return *arenas_; }
  [[nodiscard]] Groups group_communicators() noexcept override {
    if (communicators_.empty()) return groups_.get();
    if (!has_groups_) return {.group = communicators_[0].get(), .replicas = nullptr};
    return {.group = communicators_[1].get(), .replicas = communicators_[2].get()};
  }
  [[nodiscard]] Groups host_group_communicators() noexcept override { return groups_.get(); }
  [[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const Config& config,
                                                          const ArenaLayout& layout,
                                                          const SumOverRanks& sum_norms) override {
    return module_.make_optimizer(device_, config, layout, sum_norms);
  }
  [[nodiscard]] std::string convolutions() const override { return convolutions_; }
  [[nodiscard]] std::string all_reduce() const override { return all_reduce_; }
  [[nodiscard]] std::string backend() const override {
    // Checkpoints of versions without classes have the sums of sm_90, and no name for them.
    const gpu::GpuClass sums = module_.identify(*device_).gpu;
    std::string library = device_->convolutions().name();
    if (sums == gpu::GpuClass::sm_90) return library;
    return fmt::format("{}, sums of {}", library, to_string(sums));
  }
  [[nodiscard]] std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    if (const DeviceDecoding* const decoding = engine_->input_format().decoding) {
      notes.push_back(fmt::format("images: decoded by {}", decoding->description()));
    }
    if (!trial_note_.empty()) notes.push_back(trial_note_);
    if (peers_.pairs == 0) return notes;
    notes.push_back(
        peers_.reaching == peers_.pairs
            ? "all GPUs of this host reach each other's memory"
            : fmt::format(
                  "{} of {} pairs of this host's GPUs reach each other's memory; {} and {} do not",
                  peers_.reaching, peers_.pairs, peers_.first, peers_.second));
    return notes;
  }
  [[nodiscard]] PhaseMarks* phase_marks() const override { return module_.phase_marks(); }
  [[nodiscard]] std::string bus_id() const override { return module_.identify(*device_).bus_id; }

 private:
  void sum(std::span<double> values) override { sum_over_ranks(values); }
  void sum(std::span<float> values) override { sum_over_ranks(values); }
  template <typename T>
  void sum_over_ranks(std::span<T> values) {
    Request request =
        arenas_->start_all_reduce_buffer(buffer_of(values, engine_->arena()), ReduceOp::sum);
    arenas_->wait(request);
  }
  void await(FunctionRef<bool()> reached) override { arenas_->synchronize_until(reached); }

  [[nodiscard]] Communicator& over_all_ranks() noexcept {
    if (!communicators_.empty()) return *communicators_.front();
    return host_.size() > 1 ? host_ : *alone_;
  }
  [[nodiscard]] bool uses_nccl(const ComputeOptions& options) const noexcept {
    return options.reduces && (options.comm == CommChoice::nccl ||
                               (options.comm == CommChoice::automatic && host_.size() > 1));
  }
  /// Rank 0 times what neither the run nor its cache knows; all ranks use its choices.
  void agree_on_algorithms(const Graph& graph, const ComputeOptions& options) {
    std::string chosen;
    collectively(host_, [&] {
      if (host_.rank() != 0 || options.conv_algorithm != ConvAlgorithm::automatic) return;
      chosen = choices_of(ChoiceKind::gpu, options.convolutions);
      if (options.conv_batch == 0) return;
      AlgorithmFile cache;
      const auto begin = std::chrono::steady_clock::now();
      for (const Graph* each : all_sizes(graph, options)) {
        chosen = module_.choose_algorithms(*device_, *each, options.precision, options.conv_batch,
                                           chosen, cache);
      }
      cache.save();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      if (cache.added() > 0) {
        trial_note_ = fmt::format("convolutions: algorithms of {} were timed in {:.1f} s",
                                  cache.added(), seconds.count());
      }
    });
    chosen = broadcast_text(host_, std::move(chosen));
    module_.set_algorithms(*device_, chosen);
    convolutions_ = with_choices(ChoiceKind::gpu, chosen, options.convolutions);
  }
  void choose_communicator(const ComputeOptions& options, const ProcessGrid& grid) {
    if (!options.reduces) return;
    NcclSettings settings;
    if (uses_nccl(options)) {
      settings = nccl_settings(module_.nccl_version(), options.deterministic, nccl_variables());
      if (host_.size() > 1) all_reduce_ = settings.text;
    }
    // A single rank reduces nothing, but with sharding it copies its shards into place.
    const bool is_sharded = !options.units.rule.unit_of.empty();
    const bool moves = host_.size() > 1 || is_sharded;
    if (!uses_nccl(options)) {
      if (!moves) return;
      auto [host, algorithm] =
          make_host_communicator(host_, link_options(options, CommChoice::mpi));
      all_reduce_ = std::move(algorithm);
      communicators_.push_back(module_.make_staged(
          *device_, std::move(host),
          {.wait_limit = options.wait_limit, .rank = host_.rank(), .progress = options.progress}));
      if (!has_groups_) return;
      communicators_.push_back(mesh_.split(*communicators_[0], {shard_axis}));
      communicators_.push_back(mesh_.split(*communicators_[0], {replica_axis}));
      return;
    }
    const auto uuids = all_gather_text(host_, module_.identify(*device_).uuid);
    const auto hosts = all_gather_text(host_, grid.host);
    std::vector<TakenDevice> taken;
    for (std::size_t rank = 0; rank < uuids.size(); ++rank) {
      taken.push_back({.host = hosts[rank], .uuid = uuids[rank]});
    }
    require_own_devices(taken);
    rendezvous_ = std::make_unique<Rendezvous>();
    // Not split one by one: they start together, so that all ranks name the one that fails.
    std::vector<std::vector<int>> sets{mesh_.ranks(host_.rank(), {replica_axis, shard_axis})};
    if (has_groups_) {
      sets.push_back(mesh_.ranks(host_.rank(), {shard_axis}));
      sets.push_back(mesh_.ranks(host_.rank(), {replica_axis}));
    }
    auto made = module_.make_nccl(
        *device_, *rendezvous_, sets,
        {.settings = std::move(settings),
         .start_limit = options.nccl_start_limit.count() > 0 ? options.nccl_start_limit
                                                             : nccl_start_limit(host_.size()),
         .limit_option = "--nccl-start-seconds",
         .wait_limit = options.wait_limit,
         .progress = options.progress});
    communicators_.assign(std::make_move_iterator(made.begin()),
                          std::make_move_iterator(made.end()));
  }

  const gpu::ModuleTable& module_;
  Communicator& host_;
  Mesh mesh_;
  bool has_groups_;  ///< several
  HostGroups groups_;
  std::shared_ptr<gpu::Device> device_;
  std::string convolutions_;
  std::string all_reduce_;
  std::string trial_note_;  ///< rank 0's
  PeerReach peers_;
  std::unique_ptr<Rendezvous> rendezvous_;
  /// Avoids MPI, which may access device-only memory even if there is nothing to send.
  std::unique_ptr<Communicator> alone_ = make_self_communicator();
  /// Over device memory: all ranks, and with several groups this rank's group and its replicas;
  /// empty if a single rank needs none.
  std::vector<std::unique_ptr<Communicator>> communicators_;
  Communicator* arenas_ = nullptr;  ///< the first of them, watched
  std::unique_ptr<Engine> engine_;
};

}  // namespace

void prepare_environment(const Config& config) {
  if (config.device != DeviceChoice::cpu && config.deterministic) forbid_nvls(nccl_variables());
}

std::unique_ptr<Compute> make_cuda_compute(const Graph& graph, const ComputeOptions& options,
                                           const ProcessGrid& grid, Communicator& host) {
  return std::make_unique<CudaCompute>(graph, options, grid, host);
}

}  // namespace lockstep
