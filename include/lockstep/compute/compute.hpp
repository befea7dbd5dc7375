#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/engine/engine.hpp"
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

struct ComputeOptions {
  DeviceChoice device = DeviceChoice::automatic;
  CommChoice comm = CommChoice::automatic;
  Precision precision = Precision::fp32;
  int threads = 0;            ///< of the processor's engine; 0: omp_get_max_threads()
  std::size_t tail_size = 0;  ///< values after the gradients
  UnitOptions units = {};     ///< what is sharded
  int group_size = 0;         ///< they do so in groups of so many; 0: all together
  bool reduces = true;        ///< false: nothing of the engine's memory goes to other ranks
  bool synchronised_norms = false;
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;
  std::int64_t conv_batch = 0;    ///< to time convolutions at; 0: they are not timed
  std::string convolutions = {};  ///< Compute::convolutions() of a run that goes on; rank 0's
  Recompute recompute = Recompute::automatic;
  bool deterministic = true;  ///< a GPU's algorithms give the same bits in every run
  bool cuda_graph = true;     ///< a GPU's work of a step is recorded once and replayed
  /// For what a GPU's host waits for; longer than the watchdog's limit (wait_limit_beside).
  std::chrono::milliseconds wait_limit = std::chrono::minutes(30);
  /// Collective; before an engine on the processor sets its memory aside. It may throw.
  std::function<void()> before_host_memory = {};
};

/// What a run computes with: an engine on the processor or on a GPU, what reduces its arenas, and
/// what updates them. The parts of a GPU come from the GPU module, which is loaded where one is
/// taken.
class Compute {
 public:
  virtual ~Compute() = default;
  [[nodiscard]] virtual Engine& engine() noexcept = 0;
  /// "GPU-" and its UUID; empty for the processor.
  [[nodiscard]] virtual std::string device_name() const = 0;
  /// For values in the engine's memory; for the host's, the host's own. With `reduces`.
  [[nodiscard]] virtual Communicator& arena_communicator() noexcept = 0;
  /// With `group_size`: as arena_communicator(), of the ranks of this one's group, and of those at
  /// its place in all groups.
  struct Groups {
    Communicator* group = nullptr;
    Communicator* replicas = nullptr;  ///< null where there is one group alone
  };
  [[nodiscard]] virtual Groups group_communicators() noexcept = 0;
  /// For values in the host's memory.
  [[nodiscard]] virtual Groups host_group_communicators() noexcept = 0;
  /// Over arenas of that layout in the engine's memory. `sum_norms`: over the shard group
  /// tensors; empty: each keeps whole ones.
  [[nodiscard]] virtual std::unique_ptr<Optimizer> make_optimizer(
      const Config& config, const ArenaLayout& layout, const SumOverRanks& sum_norms = {}) = 0;
  /// The algorithms that were chosen for convolutions, for a checkpoint: those of this kind of
  /// device, and what the run has chosen for others.
  [[nodiscard]] virtual std::string convolutions() const { return ""; }
  /// What sums arenas over all ranks, for a checkpoint: the MPI and its algorithm, "NCCL" or
  /// "shared memory"; empty for one rank. A sum's bits depend on it.
  [[nodiscard]] virtual std::string all_reduce() const { return ""; }
  /// For the start: how ranks reach each other's memory, and what was timed.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
  /// For a GPU's profilers; null for the processor. There as long as the process.
  [[nodiscard]] virtual PhaseMarks* phase_marks() const { return nullptr; }
  /// The host's NUMA node that a GPU is closest to; -1 where there is none, or it is not known.
  [[nodiscard]] virtual int numa_node() const noexcept { return -1; }
};

/// Collective. `host` outlives it. Error(usage) on all ranks where what was asked for cannot be
/// had, never something else instead.
[[nodiscard]] std::unique_ptr<Compute> make_compute(const Graph& graph,
                                                    const ComputeOptions& options,
                                                    const ProcessGrid& grid, Communicator& host);

}  // namespace lockstep
