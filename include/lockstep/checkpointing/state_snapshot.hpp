#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/model_average.hpp"
#include "lockstep/parallel/shard_cost.hpp"
#include "lockstep/parallel/state_transfer.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Parameters, optimizer slots, running statistics and their average at a step boundary. Each rank
/// copies its contribution to preallocated memory; training continues while rank 0's writer writes
/// tensor by tensor. If the state is sharded, ranks send units to rank 0 at later boundaries, as
/// many as its writer waits for and its buffer can take; no rank ever holds more than its shard and
/// some units. All constructor references outlive it.
class StateSnapshot final {
 public:
  struct Source {
    Engine& engine;
    StateTransfer& transfer;
    Optimizer& optimizer;
    const ModelAverage* average = nullptr;  ///< null: the optimizer has no ema_slot
  };
  /// `gathered_values`: most values of units that have arrived and are not written yet; a single
  /// unit may be larger. Allocates and touches the memory of the copy here, and that for units at
  /// the first save.
  StateSnapshot(const Source& source, bool is_rank_0,
                std::size_t gathered_values = most_gathered_values);

  /// Copies this rank's contribution. The state must be settled, and no thread may call next().
  void take();

  /// On rank 0: number of units still needed that fit in its buffer now; 0 if not sharded.
  [[nodiscard]] int wanted();
  /// Gathers the next `units` units on rank 0, at most the last wanted(). Collective if the state
  /// is sharded.
  void deliver(int units);

  /// For the writer: the next tensor, in the order of the network, in the plain layout; waits for
  /// units that have not arrived. Error(cannot_write) after give_up().
  [[nodiscard]] std::optional<StoredTensor> next();
  /// Call if no more units will arrive.
  void give_up();
  /// How long next() has waited for units since take().
  [[nodiscard]] double waited_seconds();

 private:
  /// A unit of the parameters (arena 0) or of slot arena - 1.
  struct Item {
    std::size_t arena;
    std::size_t unit;
  };
  /// A tensor of the file.
  struct Entry {
    std::string group;
    std::optional<std::size_t> item;  ///< index in items_ of its unit; nullopt: a statistic
    std::size_t index;                ///< of the parameter in the graph, or in statistics_
    const std::string* name;
    Shape shape;
  };
  void plan_entries();
  void add_statistics(const std::string& group, std::size_t begin);
  [[nodiscard]] std::span<const float> contribution(const Item& item);
  [[nodiscard]] std::span<const float> unit_values_of(std::size_t item);
  [[nodiscard]] std::size_t size_of(std::size_t item) const;
  /// Offset in buffer_ for an item of `size` after the items [first, end); nullopt: no space.
  [[nodiscard]] std::optional<std::size_t> place_behind(std::size_t first, std::size_t end,
                                                        std::size_t size) const;
  Engine& engine_;
  StateTransfer& transfer_;
  Optimizer& optimizer_;
  const ModelAverage* average_;
  bool is_rank_0_;
  bool sharded_;
  std::vector<Item> items_;
  std::vector<std::size_t> offsets_;  ///< of each item's contribution in copy_
  AlignedBuffer<float> copy_;         ///< this rank's contribution
  std::vector<float> statistics_;     ///< rank 0's, then their average
  std::vector<Entry> entries_;        ///< in the file's order
  std::size_t next_entry_ = 0;        ///< the writer's
  std::size_t sent_ = 0;              ///< items that this rank has sent
  std::size_t buffer_size_ = 0;
  AlignedBuffer<float> buffer_;  ///< rank 0's ring buffer of arriving units, kept between saves

  std::mutex mutex_;  ///< guards the members below, rank 0's
  std::condition_variable moved_;
  std::vector<std::size_t> places_;  ///< offsets in buffer_ of the items wanted so far
  std::size_t written_ = 0;          ///< items whose space in buffer_ is free again
  std::size_t arrived_ = 0;          ///< items that have arrived
  bool given_up_ = false;
  double waited_ = 0;
};

}  // namespace lockstep
