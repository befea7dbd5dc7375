#pragma once

#include <boost/test/unit_test.hpp>

#include "../../src/engine/gpu/device_engine.hpp"
#include "../../src/optim/device/device_optimizer.hpp"
#include "engine/gpu/host_device.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mesh.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/engine/norm_exchange.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/optim/weight_average.hpp"
#include "lockstep/parallel/model_average.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/replica_averager.hpp"
#include "lockstep/train/train_step.hpp"

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::test {

/// Waits for the device's queued work before each collective on its memory.
class BehindDevice final : public ForwardingCommunicator {
 public:
  BehindDevice(Communicator& inner, gpu::Device& device)
      : ForwardingCommunicator(inner), device_(device) {}

 private:
  void begin(const CollectiveCall& /*call*/) override { device_.synchronize(); }
  void before_start(const CollectiveCall& /*call*/) override { device_.synchronize(); }

  gpu::Device& device_;
};

/// Calls `before` with next()'s `meanwhile` before each batch of `inner`.
class LateLoader final : public Loader {
 public:
  using Before = std::function<void(FunctionRef<void()> meanwhile)>;
  LateLoader(std::unique_ptr<Loader> inner, Before before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  std::optional<LoadedBatch> next(FunctionRef<void()> meanwhile) override {
    if (before_) before_(meanwhile);
    return inner_->next(meanwhile);
  }

 private:
  std::unique_ptr<Loader> inner_;
  Before before_;
};

/// Sums by `comm`, which may be set after an engine has been made with this.
class NormsOver final : public NormExchange {
 public:
  void sum(std::span<double> values) override { sum_all(values); }
  void sum(std::span<float> values) override { sum_all(values); }
  void await(FunctionRef<bool()> reached) override { comm->synchronize_until(reached); }
  Communicator* comm = nullptr;

 private:
  template <typename T>
  void sum_all(std::span<T> values) {
    Request request = comm->start_all_reduce(values);
    comm->wait(request);
  }
};

/// Whether all ranks have the same value. Collective.
[[nodiscard]] inline bool same_on_all_ranks(Communicator& comm, std::uint64_t mine) {
  return comm.all_reduce_value(mine, ReduceOp::min) == comm.all_reduce_value(mine, ReduceOp::max);
}

/// The complete training set-up of one rank, with synthetic images.
class TrainRig final {
 public:
  struct Options {
    std::string model = "mini-resnet";
    Graph (*graph)() = nullptr;  ///< instead of the model; of 3x12x12 images of 10 classes
    std::int64_t global_batch = 64;
    int accumulate = 1;
    double bucket_bytes = 25e6;
    double clip_grad_norm = 0;
    OptimizerKind optimizer = OptimizerKind::sgd;
    double lr = 0.05;
    Precision precision = Precision::fp32;
    ElementType reduce_dtype = ElementType::f32;
    bool synchronised = false;
    /// Uses the GPU engine, on a host device; on in bf16 if the CPU engine does not compute in it.
    bool device = false;
    gpu::HostWork work = gpu::HostWork::at_once;
    std::shared_ptr<gpu::HostQueues> queues = nullptr;  ///< queues of the device; overrides `work`
    gpu::HostMemoryGuard guard = gpu::HostMemoryGuard::off;
    std::optional<LossScale> loss_scale = std::nullopt;
    double ema_decay = 0;
    bool averages_slots = true;  ///< with the replicas
    ShardMode shard = ShardMode::none;
    ShardUnit shard_unit = {.by = ShardUnit::By::block, .smallest = 0};
    CommunicationDtype param_dtype = CommunicationDtype::automatic;
    std::int64_t shard_group = 0;
    bool accumulate_full_gradients = false;
    /// Communicators for the engine's memory, if not the host's: over all ranks, the shard group
    /// and the replicas.
    std::vector<Communicator*> device_comms = {};
    int threads = 1;
    std::int64_t width = 8;
    TraceRecorder* trace = nullptr;
    std::int64_t steps = 1000;  ///< that have data
    /// Called before each batch with what the loader calls while a batch is not ready.
    LateLoader::Before before_batch = {};
  };

  TrainRig(Communicator& comm, const Options& options)
      : geometry_{.samples = 512,
                  .global_batch = options.global_batch,
                  .world_size = comm.size(),
                  .rank = comm.rank(),
                  .accumulate = options.accumulate},
        graph_(options.graph != nullptr
                   ? options.graph()
                   : make_model(options.model, {.image = {.channels = 3, .height = 12, .width = 12},
                                                .classes = 10,
                                                .width = options.width,
                                                .zero_init_residual = false,
                                                .label_smoothing = 0.1})),
        comm_(comm),
        config_(config_of(options)),
        engine_(make_engine(options)),
        data_(make_synthetic_dataset({.samples = 512,
                                      .image = {.channels = 3, .height = 12, .width = 12},
                                      .classes = 10,
                                      .seed = 5})),
        lr_(options.lr) {
    if (device_) behind_device_.emplace(comm, *device_);
    Communicator* arena_comm = behind_device_ ? &*behind_device_ : &comm;
    if (!options.device_comms.empty()) arena_comm = options.device_comms[0];
    norms_.comm = arena_comm;
    state_ = make_parallel_state(config_, *engine_, shard_comms(options, *arena_comm),
                                 TailBucket(graph_).size());
    optimizer_ = device_ ? gpu::make_device_optimizer(device_, config_, state_->layout(),
                                                      state_->sum_over_shards())
                         : make_optimizer(config_, state_->layout(), state_->sum_over_shards());
    if (options.shard == ShardMode::none) {
      averager_.emplace(
          *engine_, *arena_comm, *optimizer_,
          ReplicaAverager::Options{.averages_slots = options.averages_slots,
                                   .bucket_bytes = static_cast<std::size_t>(options.bucket_bytes)});
    }
    if (options.ema_decay > 0) average_.emplace(*engine_, *state_, *optimizer_);
    start(initial_parameters(*engine_, 3));
    loader_ = make_loader(*data_,
                          {.image = image_shape(graph_.input_shape()),
                           .format = engine_->input_format(),
                           .mean = {0.5F, 0.5F, 0.5F},
                           .std = {0.25F, 0.25F, 0.25F},
                           .augment = Augment::crop_flip,
                           .crop_padding = 2,
                           .seed = 11,
                           .batch_capacity = geometry_.largest_micro_batch(),
                           .threads = 0,
                           .trace = options.trace},
                          plan_training_batches(geometry_, {}, options.steps));
    loader_ = std::make_unique<LateLoader>(std::move(loader_), options.before_batch);
    step_ = std::make_unique<TrainStep>(
        *engine_, *state_, *optimizer_, comm, *loader_,
        TrainStepOptions{
            .geometry = geometry_,
            .clip_grad_norm = options.clip_grad_norm,
            .loss_scale = options.loss_scale,
            .has_collectives = options.synchronised || options.shard != ShardMode::none,
            .replicas = averager_ ? &*averager_ : nullptr,
            .average = average(),
            .trace = options.trace});
  }

  StepResult run(NextAction next = NextAction::other, StepSync sync = StepSync::gradients) {
    const std::int64_t update = scaler().updates(++steps_);
    const double decay = EmaSchedule(config_, geometry_.samples, geometry_.global_batch)
                             .decay(update, (steps_ - 1) * geometry_.global_batch);
    return step_->run({.number = steps_, .lr = lr_, .ema_decay = decay},
                      {.next = next, .sync = sync});
  }

  [[nodiscard]] std::vector<float> gradients() const { return plain(read(engine_->gradients())); }
  [[nodiscard]] std::vector<float> parameters() const { return plain(read(engine_->parameters())); }
  [[nodiscard]] std::vector<float> statistics() const {
    const auto values = engine_->running_statistics();
    return {values.begin(), values.end()};
  }
  [[nodiscard]] std::uint32_t bits() const {
    const std::vector<float> parameters = read(engine_->parameters());
    const auto crc = crc32c(std::as_bytes(std::span(parameters)));
    return crc32c(std::as_bytes(engine_->running_statistics()), crc);
  }
  /// The unsharded parameters, on all ranks. Collective.
  [[nodiscard]] std::vector<float> all_parameters() { return plain(whole({})); }
  [[nodiscard]] std::vector<float> all_gradients() { return plain(whole(state_->gradients())); }
  [[nodiscard]] std::vector<float> all_of_slot(std::size_t slot) {
    return plain(whole(optimizer_->slot(slot)));
  }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] ParallelState& state() { return *state_; }
  [[nodiscard]] Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] ModelAverage* average() { return average_ ? &*average_ : nullptr; }
  [[nodiscard]] TrainStep& step() { return *step_; }
  [[nodiscard]] const gpu::Device& device() const { return *device_; }
  [[nodiscard]] const LossScaler& scaler() const { return step_->loss_scaler(); }
  [[nodiscard]] const BatchGeometry& geometry() const { return geometry_; }
  [[nodiscard]] const Dataset& data() const { return *data_; }

 private:
  [[nodiscard]] int shard_group() const {
    return config_.shard == ShardMode::hybrid ? static_cast<int>(config_.shard_group)
                                              : comm_.size();
  }
  [[nodiscard]] ShardComms shard_comms(const Options& options, Communicator& arenas) {
    if (options.shard != ShardMode::hybrid) {
      return {.all = arenas, .group_host = comm_, .group = arenas};
    }
    const Mesh mesh = data_mesh(comm_.size(), shard_group());
    group_ = mesh.split(comm_, {shard_axis});
    replicas_ = mesh.split(comm_, {replica_axis});
    const auto& devices = options.device_comms;
    return {.all = arenas,
            .group_host = *group_,
            .group = devices.empty() ? *group_ : *devices[1],
            .replicas_host = replicas_.get(),
            .replicas = devices.empty() ? replicas_.get() : devices[2]};
  }
  static Config config_of(const Options& options) {
    Config config;
    config.optimizer = options.optimizer;
    config.ema_decay = options.ema_decay;
    config.accumulate = options.accumulate;
    config.bucket_mb = options.bucket_bytes / 0x1p20;
    config.grad_compression = options.reduce_dtype == ElementType::bf16  ? GradCompression::bf16
                              : options.reduce_dtype == ElementType::f16 ? GradCompression::fp16
                                                                         : GradCompression::none;
    config.shard = options.shard;
    config.shard_unit = options.shard_unit;
    config.param_dtype = options.param_dtype;
    config.precision = options.precision;
    config.shard_group = options.shard_group;
    config.accumulate_full_gradients = options.accumulate_full_gradients;
    return config;
  }
  void start(std::vector<float> arena) {
    initialize_statistics(*engine_);
    for (std::size_t i = 0; i < state_->units().size(); ++i) {
      state_->scatter_parameters(i, of_rank_0(state_->units()[i], arena));
    }
  }
  [[nodiscard]] std::span<float> of_rank_0(const ArenaUnit& unit, std::vector<float>& arena) {
    return comm_.rank() == 0 ? unit.in(std::span(arena)) : std::span<float>();
  }
  /// Gathers the ranks' shards `own`, or the parameters if `own` is empty.
  [[nodiscard]] std::vector<float> whole(std::span<const float> own) {
    std::vector<float> arena(comm_.rank() == 0 ? engine_->layout().size() : 0);
    for (std::size_t i = 0; i < state_->units().size(); ++i) {
      const std::span<float> unit = of_rank_0(state_->units()[i], arena);
      if (own.empty()) {
        state_->gather_parameters(i, unit);
      } else {
        state_->gather(i, own, unit);
      }
    }
    arena.resize(engine_->layout().size());
    comm_.broadcast(std::span(arena));
    return arena;
  }
  [[nodiscard]] std::unique_ptr<Engine> make_engine(const Options& options) {
    const bool sharded = options.shard != ShardMode::none;
    const std::size_t tail_size = sharded ? 0 : TailBucket(graph_).size();
    if (options.device ||
        (options.precision == Precision::bf16 && !cpu_computes_in(Precision::bf16))) {
      device_ = options.queues != nullptr ? gpu::make_host_device(options.queues, options.guard)
                                          : gpu::make_host_device(options.work, options.guard);
      return gpu::make_device_engine(device_, graph_,
                                     {.tail_size = tail_size,
                                      .units = unit_options(config_, graph_, shard_group()),
                                      .precision = options.precision,
                                      .norms = options.synchronised ? &norms_ : nullptr});
    }
    return make_cpu_engine(graph_, {.threads = options.threads,
                                    .tail_size = tail_size,
                                    .precision = options.precision,
                                    .sum_over_ranks = sum_over(comm_, options),
                                    .units = unit_options(config_, graph_, shard_group())});
  }
  static SumOverRanks sum_over(Communicator& comm, const Options& options) {
    if (!options.synchronised) return {};
    return [&comm](std::span<double> values) { comm.all_reduce(values); };
  }
  /// Memory of the engine.
  [[nodiscard]] std::vector<float> read(std::span<const float> there) const {
    std::vector<float> host(there.size());
    engine_->memory().read(there, host);
    return host;
  }
  [[nodiscard]] std::vector<float> plain(std::span<const float> arena) const {
    std::vector<float> all;
    for (std::size_t id = 0; id < graph_.parameters().size(); ++id) {
      std::vector<float> values(static_cast<std::size_t>(graph_.parameters()[id].shape.elements()));
      engine_->to_plain(
          engine_->layout().view_of(static_cast<ParameterId>(id)).in(std::span<const float>(arena)),
          static_cast<ParameterId>(id), values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  BatchGeometry geometry_;
  Graph graph_;
  Communicator& comm_;
  Config config_;
  std::shared_ptr<gpu::Device> device_;
  std::optional<BehindDevice> behind_device_;
  NormsOver norms_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Communicator> replicas_;
  std::unique_ptr<ParallelState> state_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ReplicaAverager> averager_;
  std::optional<ModelAverage> average_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<TrainStep> step_;
  std::int64_t steps_ = 0;
  double lr_;
};

inline double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  BOOST_REQUIRE_EQUAL(a.size(), b.size());
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

}  // namespace lockstep::test
