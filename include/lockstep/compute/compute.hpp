#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/device_progress.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/phase_marks.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class Engine;

struct ComputeOptions {
  DeviceChoice device = DeviceChoice::automatic;
  CommChoice comm = CommChoice::automatic;
  AllReduce all_reduce = AllReduce::automatic;
  CommProgress comm_progress = CommProgress::automatic;
  std::vector<int> cores = {};  ///< of the threads that communicate; empty: any
  Precision precision = Precision::fp32;
  int threads = 0;            ///< of the CPU engine; 0: omp_get_max_threads()
  std::size_t tail_size = 0;  ///< values after the gradients
  UnitOptions units = {};     ///< what is sharded
  int group_size = 0;         ///< size of a shard group; 0: all ranks
  bool reduces = true;        ///< false: no arena is communicated
  bool synchronised_norms = false;
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;
  std::int64_t conv_batch = 0;    ///< batch size of timed convolutions; 0: none are timed
  std::string convolutions = {};  ///< rank 0's Compute::convolutions() of the resumed run
  /// Networks for images of other sizes, which programs will train: their convolutions are timed
  /// too.
  std::vector<const Graph*> resized = {};
  Recompute recompute = Recompute::automatic;
  DecodeChoice decode = DecodeChoice::automatic;
  bool deterministic = true;  ///< only GPU algorithms that give the same bits in every run
  bool cuda_graph = true;     ///< records a GPU's work of a step once and replays it
  /// Limit of the host's waits for a GPU; longer than the watchdog's limit (wait_limit_beside).
  std::chrono::milliseconds wait_limit = std::chrono::minutes(30);
  /// Limit of NCCL's start (--nccl-start-seconds); 0: from the number of ranks.
  std::chrono::milliseconds nccl_start_limit{0};
  /// Wraps the arenas' communicator before anything communicates by it; the result outlives the
  /// Compute. Empty: it is not wrapped.
  std::function<Communicator&(Communicator&)> watched = {};
  /// Receives the counts of a GPU's collectives; outlives the Compute. Null: not counted.
  DeviceProgress* progress = nullptr;
  /// Called before a CPU engine allocates its memory. Collective; may throw.
  std::function<void()> before_host_memory = {};
};

/// What a run computes with: an engine on the CPU or on a GPU, the communicators that reduce its
/// arenas, and the optimizer. The GPU parts come from the GPU module, which is loaded only if a GPU
/// is used.
class Compute {
 public:
  virtual ~Compute() = default;
  [[nodiscard]] virtual Engine& engine() noexcept = 0;
  /// "GPU-" and the UUID; empty for the CPU.
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// For values in the engine's memory; on the CPU, the host's communicator. Only with `reduces`.
  [[nodiscard]] virtual Communicator& arena_communicator() noexcept = 0;
  /// Only with `group_size`: like arena_communicator(), over the shard group of this rank, and over
  /// the ranks at the same index in all groups (replicas).
  struct Groups {
    Communicator* group = nullptr;
    Communicator* replicas = nullptr;  ///< null if there is only one group
  };
  [[nodiscard]] virtual Groups group_communicators() noexcept = 0;
  /// For values in host memory.
  [[nodiscard]] virtual Groups host_group_communicators() noexcept = 0;
  /// An optimizer over arenas of that layout in the engine's memory. `sum_norms`: sums tensors'
  /// norms over the shard group if the layout is sharded.
  [[nodiscard]] virtual std::unique_ptr<Optimizer> make_optimizer(
      const Config& config, const ArenaLayout& layout, const SumOverRanks& sum_norms = {}) = 0;
  /// The chosen convolution algorithms, for a checkpoint: those of this kind of device, and those
  /// that the run has chosen for others.
  [[nodiscard]] virtual std::string convolutions() const { return ""; }
  /// What sums arenas over all ranks, for a checkpoint: "shared memory", the schedule of messages,
  /// the MPI and its algorithm, or NcclSettings::text; empty for one rank. A sum's bits depend on
  /// it.
  [[nodiscard]] virtual std::string all_reduce() const { return ""; }
  /// What computes, for a checkpoint: "oneDNN 2.6.3, avx512_core_bf16", or the GPU and cuDNN. A
  /// step's bits depend on it.
  [[nodiscard]] virtual std::string backend() const = 0;
  /// Lines to print at the start: how ranks access each other's memory, and what was timed.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
  /// For GPU profilers; null for the CPU. Lives as long as the process.
  [[nodiscard]] virtual PhaseMarks* phase_marks() const { return nullptr; }
  /// The GPU's, "0000:0a:00.0"; empty for the CPU.
  [[nodiscard]] virtual std::string bus_id() const { return ""; }
};

/// Sets what GPU libraries read from the environment, for sums with equal bits. Call before threads
/// of our own start, and before make_compute().
void prepare_environment(const Config& config);

/// Collective. `host` must outlive the result. Error(usage) on all ranks if what was asked for is
/// not available; never falls back to something else.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const Graph& graph,
                                                    const ComputeOptions& options,
                                                    const ProcessGrid& grid, Communicator& host);

}  // namespace lockstep
