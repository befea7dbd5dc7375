#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/arena.hpp"
#include "lockstep/optim/optimizer.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

class Engine;

/// Averages the ranks' replicas after local steps, as torch.distributed's PeriodicModelAverager:
/// https://pytorch.org/docs/stable/distributed.optim.html. Frozen parameters keep their bits.
class ReplicaAverager final {
 public:
  struct Options {
    bool averages_slots = true;  ///< else of the optimizer's slots only ema_slot
    std::size_t bucket_bytes = std::size_t{25} << 20;
  };
  /// All references outlive it. `comm` reduces the engine's memory.
  ReplicaAverager(Engine& engine, Communicator& comm, Optimizer& optimizer, const Options& options);

  /// Averages parameters and slots, in fp32; uses the gradients' memory. The result has the same
  /// bits on all ranks. Call between the update and the next step. Collective.
  void average();

 private:
  void average(std::span<float> arena);

  Engine& engine_;
  Communicator& comm_;
  Optimizer& optimizer_;
  Options options_;
  std::vector<ArenaUnit> ranges_;  ///< of trained parameters
  std::vector<Request> requests_;  ///< by range
};

}  // namespace lockstep
