#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/model_average.hpp"
#include "lockstep/parallel/state_transfer.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Engine;

/// Rank 0's copy of parameters, optimizer slots, running statistics and their average at a step
/// boundary, in preallocated memory; training continues while its writer writes tensor by tensor.
/// All constructor references outlive it.
class StateSnapshot final {
 public:
  struct Source {
    Engine& engine;
    StateTransfer& transfer;
    Optimizer& optimizer;
    const ModelAverage* average = nullptr;  ///< null: the optimizer has no ema_slot
  };
  /// Allocates and touches rank 0's memory here.
  StateSnapshot(const Source& source, bool is_rank_0);

  /// Copies the state to rank 0. The state must be settled, and no thread may call next().
  /// Collective if the state is sharded.
  void take();
  /// Rank 0's writer begins again with the first tensor.
  void rewind() noexcept { next_entry_ = 0; }
  /// For rank 0's writer: the next tensor, in the order of the network, in the plain layout.
  [[nodiscard]] std::optional<StoredTensor> next();

 private:
  /// A tensor of the file.
  struct Entry {
    std::string group;
    std::optional<ParameterId> parameter;  ///< nullopt: a statistic
    std::size_t begin;                     ///< in copy_ or statistics_
    const std::string* name;
    Shape shape;
  };
  void plan_entries();
  void add_statistics(const std::string& group, std::size_t begin);

  Engine& engine_;
  StateTransfer& transfer_;
  Optimizer& optimizer_;
  const ModelAverage* average_;
  bool is_rank_0_;
  AlignedBuffer<float> copy_;      ///< rank 0's: the parameters' arena, then the slots' ones
  std::vector<float> statistics_;  ///< rank 0's, then their average
  std::vector<Entry> entries_;     ///< in the file's order
  std::size_t next_entry_ = 0;     ///< the writer's
};

}  // namespace lockstep
