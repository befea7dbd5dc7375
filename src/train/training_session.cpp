#include "lockstep/train/training_session.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/health/run_watch.hpp"
#include "lockstep/parallel/shard_group.hpp"
#include "lockstep/parallel/tail_bucket.hpp"
#include "shard_comms.hpp"

#include <chrono>
#include <cstddef>

namespace lockstep {
namespace {

ComputeOptions compute_options(const Config& config, const SessionOptions& options,
                               std::size_t tail_size, const UnitOptions& units, int shard_group) {
  ComputeOptions result{.device = config.device,
                        .comm = config.comm,
                        .all_reduce = config.all_reduce,
                        .comm_progress = config.comm_progress,
                        .cores = options.cores,
                        .precision = config.precision,
                        .threads = options.threads,
                        .tail_size = config.shard == ShardMode::none ? tail_size : 0,
                        .units = units,
                        .group_size = config.shard == ShardMode::hybrid ? shard_group : 0,
                        .synchronised_norms = config.batch_norm == BatchNormScope::sync,
                        .conv_algorithm = config.conv_algorithm,
                        .conv_batch = options.conv_batch,
                        .convolutions = options.convolutions,
                        .resized = options.resized,
                        .recompute = config.recompute,
                        .decode = config.decode,
                        .deterministic = config.deterministic,
                        .cuda_graph = config.cuda_graph};
  result.nccl_start_limit = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(config.nccl_start_seconds));
  if (options.watch != nullptr) {
    result.wait_limit = options.watch->wait_limit();
    result.progress = &options.watch->board().device();
    result.watched = [watch = options.watch](Communicator& arenas) -> Communicator& {
      return watch->watched(arenas, "the arenas'");
    };
  }
  if (options.before_host_memory) {
    result.before_host_memory = [&options, shard_group] {
      options.before_host_memory(shard_group);
    };
  }
  return result;
}

}  // namespace

TrainingSession::TrainingSession(const Graph& graph, const Config& config, const ProcessGrid& grid,
                                 Communicator& comm, const SessionOptions& options)
    : config_(config),
      comm_(comm),
      shard_group_(shard_group_size(config, grid, comm)),
      units_(unit_options(config, graph, shard_group_)) {
  const std::size_t tail_size = TailBucket(graph).size();
  compute_ = make_compute(graph, compute_options(config, options, tail_size, units_, shard_group_),
                          grid, comm);
  if (options.watch != nullptr) options.watch->name_devices(compute_->device_name());
  Communicator* arenas = &compute_->arena_communicator();
  if (options.watch == nullptr && options.trace != nullptr && !engine().memory().queues()) {
    arenas = &traced_.emplace(*arenas, *options.trace);
  }
  parallel_ = make_parallel_state(config, engine(),
                                  shard_comms(*compute_, options.watch, comm, *arenas), tail_size);
  optimizer_ = compute_->make_optimizer(config, parallel_->layout(), parallel_->sum_over_shards());
  if (config.sync_every > 0) {
    replicas_.emplace(
        engine(), *arenas, *optimizer_,
        ReplicaAverager::Options{.averages_slots = config.sync_momentum == SyncMomentum::average,
                                 .bucket_bytes = bucket_bytes(config)});
  }
  if (config.ema_decay > 0) average_.emplace(engine(), *parallel_, *optimizer_);
  require_agreement(comm, layout_text(engine()), "the parameters' layout",
                    "the processors differ, so the engine chose other layouts");
}

std::vector<std::string> TrainingSession::start(const RunStart& from) {
  return start_model(from, config_, engine(), *parallel_, *optimizer_, comm_, average());
}

bool TrainingSession::training_has_collectives() const noexcept {
  return config_.batch_norm == BatchNormScope::sync || config_.shard != ShardMode::none;
}

}  // namespace lockstep
