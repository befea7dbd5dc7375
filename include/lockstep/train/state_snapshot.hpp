#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Parameters, optimizer slots and running statistics as they were at a step's boundary: each rank
/// copies what it must give into memory that was taken at the start, and training goes on while
/// rank 0's writer takes tensor after tensor. Where ranks share the state out, the pieces come to
/// rank 0 at later boundaries, so many at a time as its writer waits for and there is room for; no
/// rank ever holds more than its own part and some pieces. Everything it is made from outlives it.
class StateSnapshot final {
 public:
  /// `arriving_values`: of pieces that have come and are not written yet, unless one alone is
  /// larger. Memory for the copy is the process's from here on, and that for pieces from the first
  /// save on.
  StateSnapshot(Engine& engine, ParallelState& state, Optimizer& optimizer, bool is_rank_0,
                std::size_t arriving_values = most_arriving_values);

  /// Copies this rank's part; the state is settled, and nobody calls next().
  void take();

  /// Rank 0: how many pieces its writer waits for and has room for; 0 where it has what it needs.
  [[nodiscard]] int wanted();
  /// Brings so many of the next pieces to rank 0, at most as many as it wanted last. Collective
  /// where ranks share the state out.
  void deliver(int pieces);

  /// For the writer: the tensors in the order of the network, in plain layouts; waits for pieces
  /// that are still to come. Error(cannot_write) after give_up().
  [[nodiscard]] std::optional<StoredTensor> next();
  /// No more pieces will come.
  void give_up();
  /// How long next() has waited for pieces since take().
  [[nodiscard]] double waited_seconds();

 private:
  /// A piece of the parameters (arena 0) or of slot arena - 1.
  struct Item {
    std::size_t arena;
    std::size_t piece;
  };
  struct Entry {
    std::string group;
    std::size_t item;  ///< that it is in
    ParameterId parameter;
  };
  void plan_entries();
  [[nodiscard]] std::span<const float> given(const Item& item);
  [[nodiscard]] std::span<const float> piece_of(std::size_t item);
  [[nodiscard]] std::size_t size_of(std::size_t item) const;
  /// Where in room_ an item of that size may lie behind those of [first, end); nullopt: nowhere.
  [[nodiscard]] std::optional<std::size_t> place_behind(std::size_t first, std::size_t end,
                                                        std::size_t size) const;
  [[nodiscard]] NamedTensor statistic(std::size_t index) const;

  Engine& engine_;
  ParallelState& state_;
  Optimizer& optimizer_;
  bool is_rank_0_;
  bool sharded_;
  std::vector<Item> items_;
  std::vector<std::size_t> offsets_;  ///< of each item's part in copy_
  AlignedBuffer<float> copy_;         ///< what this rank gives
  std::vector<float> statistics_;     ///< rank 0's
  std::vector<std::size_t> statistic_offsets_;
  std::vector<Entry> entries_;  ///< in the file's order
  std::size_t entries_before_statistics_ = 0;
  std::size_t next_entry_ = 0;  ///< the writer's, of entries_ and statistics together
  std::size_t sent_ = 0;        ///< items that this rank has given
  std::size_t room_size_ = 0;
  AlignedBuffer<float> room_;  ///< rank 0's, for pieces that arrive; a ring, kept between saves

  std::mutex mutex_;  ///< of what follows, rank 0's
  std::condition_variable moved_;
  std::vector<std::size_t> places_;  ///< in room_, of the items that were wanted
  std::size_t written_ = 0;          ///< items whose places are free again
  std::size_t arrived_ = 0;          ///< items that have come
  bool given_up_ = false;
  double waited_ = 0;
};

}  // namespace lockstep
