#pragma once

#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/model_average.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/parallel/replica_averager.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/traced_communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Engine;

class RunWatch;

struct SessionOptions {
  int threads = 0;                         ///< of the CPU engine; 0: omp_get_max_threads()
  std::vector<int> cores = {};             ///< as in ComputeOptions
  std::int64_t conv_batch = 0;             ///< as in ComputeOptions
  std::string convolutions = {};           ///< as in ComputeOptions
  std::vector<const Graph*> resized = {};  ///< as in ComputeOptions
  RunWatch* watch = nullptr;  ///< watches the communicators; null: they are not watched
  /// Without a watch: records the arenas' collectives, if the engine is on the CPU. May be null.
  TraceRecorder* trace = nullptr;
  /// Called before a CPU engine allocates its memory, with the size of the shard group. Collective;
  /// may throw.
  std::function<void(int shard_group)> before_host_memory = {};
};

/// What trains a network on this rank: an engine, the state that ranks keep in common, and the
/// optimizer, as the configuration asks for them. Made by all ranks at the same time.
class TrainingSession final {
 public:
  /// Collective. The arguments outlive it. Error(usage) on all ranks if what was asked for is not
  /// available, or if ranks chose different layouts of the parameters.
  TrainingSession(const Graph& graph, const Config& config, const ProcessGrid& grid,
                  Communicator& comm, const SessionOptions& options);

  /// Sets parameters, optimizer slots and the average; see start_model(). Collective.
  std::vector<std::string> start(const RunStart& from);

  [[nodiscard]] Compute& compute() noexcept { return *compute_; }
  [[nodiscard]] Engine& engine() noexcept { return compute_->engine(); }
  [[nodiscard]] ParallelState& parallel() noexcept { return *parallel_; }
  [[nodiscard]] Optimizer& optimizer() noexcept { return *optimizer_; }
  /// Null without --ema-decay.
  [[nodiscard]] ModelAverage* average() noexcept { return average_ ? &*average_ : nullptr; }
  /// Null without --sync-every.
  [[nodiscard]] ReplicaAverager* replicas() noexcept { return replicas_ ? &*replicas_ : nullptr; }
  /// Its size in ranks; 1 if each rank keeps everything.
  [[nodiscard]] int shard_group() const noexcept { return shard_group_; }
  /// Whether training programs contain collectives, so that all ranks must run each micro-step.
  [[nodiscard]] bool training_has_collectives() const noexcept;
  /// Whether evaluation programs do.
  [[nodiscard]] bool evaluation_has_collectives() const noexcept {
    return !units_.holds_parameters;
  }

 private:
  const Config& config_;
  Communicator& comm_;
  int shard_group_;
  UnitOptions units_;
  std::unique_ptr<Compute> compute_;
  std::optional<TracedCommunicator> traced_;
  std::unique_ptr<ParallelState> parallel_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ModelAverage> average_;
  std::optional<ReplicaAverager> replicas_;
};

}  // namespace lockstep
