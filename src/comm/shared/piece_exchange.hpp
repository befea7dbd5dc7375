#pragma once

#include "lockstep/comm/communicator.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// Reductions and gathers over memory that all ranks see, in pieces of a fixed size. A rank has a
/// window of it, a ring of pieces. Of each piece it
///   1. copies its values into its window, where all have taken out what was there before,
///   2. adds up its own slice over all windows, once all have copied in, and
///   3. takes the others' slices out of their windows, once they have added them up.
/// All ranks have the same pieces in the same order, so three counters of each rank say where it
/// is. Nobody waits here: advance() does what can be done.
class PieceExchange final {
 public:
  /// What all ranks do together: `count` values in a block for each rank.
  struct Operation {
    const std::byte* from = nullptr;  ///< its blocks lie one after the other; of a gather, its own
    std::byte* to = nullptr;          ///< as `from`; of a scatter, its own block
    std::size_t count = 0;            ///< of values in a block
    std::size_t total = 0;            ///< of values in all blocks; the last ones may be shorter
    ElementType type = ElementType::f32;
    bool reduces = false;  ///< or each brings its own block
    bool gathers = false;  ///< or each keeps its own block
  };

  /// Bytes of the counters.
  [[nodiscard]] static std::size_t counter_bytes(int ranks);
  struct Memory {
    std::byte* counters = nullptr;  ///< counter_bytes() of them, zero at first
    std::byte* windows = nullptr;   ///< of each rank, one after another
    std::size_t window = 0;         ///< bytes of each
  };
  /// All ranks share the memory.
  PieceExchange(const Memory& memory, int rank, int ranks);

  /// In the order of all ranks. Values of `from` and `to` are the exchange's until it is done.
  void add(const Operation& operation);
  /// Moves all operations on as far as the others allow now.
  void advance();
  /// Operations that ended, in the order in which they were added.
  [[nodiscard]] std::uint64_t ended() const noexcept { return ended_; }
  [[nodiscard]] std::uint64_t added() const noexcept { return added_; }
  [[nodiscard]] bool is_idle() const noexcept { return ended_ == added_; }

 private:
  static constexpr std::size_t line = 64;  ///< of the cache, in bytes
  /// How many pieces a rank has done with, of all operations together.
  struct alignas(line) Counter {
    std::atomic<std::uint64_t> pieces;
  };
  struct Counters {
    Counter copied;
    Counter reduced;
    Counter taken;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share it");

  /// An operation under way.
  struct Flight {
    Operation operation;
    std::size_t slice = 0;    ///< values of one block in a piece
    std::uint64_t begin = 0;  ///< its first piece
    std::uint64_t end = 0;
  };
  /// A part of a block.
  struct Slice {
    std::size_t begin = 0;   ///< within all blocks, in values
    std::size_t within = 0;  ///< the block, in values
    std::size_t size = 0;
  };
  [[nodiscard]] static Slice slice_of(const Flight& flight, std::uint64_t piece, int block);
  [[nodiscard]] std::byte* place(int rank, std::uint64_t piece, const Flight& flight, int block);

  void copy_in(const Flight& flight, std::uint64_t piece);
  void reduce(const Flight& flight, std::uint64_t piece);
  void take_out(const Flight& flight, std::uint64_t piece);

  /// Where one of the three stands.
  struct Cursor {
    std::uint64_t piece = 0;
    std::uint64_t operation = 0;
  };
  /// Does `work` of all pieces below `limit`, and counts them for the others.
  template <typename Work>
  bool run(Cursor& cursor, std::uint64_t limit, Counter& counter, Work&& work);
  [[nodiscard]] std::uint64_t lowest(Counter Counters::*counter) const;
  [[nodiscard]] Flight& flight(std::uint64_t operation) noexcept {
    return flights_[operation % flights_.size()];
  }

  Counters* counters_;  ///< of each rank
  std::byte* windows_;
  std::size_t window_;
  std::size_t piece_bytes_;
  int rank_;
  int ranks_;
  std::vector<Flight> flights_ = std::vector<Flight>(64);  ///< a ring
  std::uint64_t added_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t pieces_ = 0;  ///< of all that were added
  Cursor in_;
  Cursor reduce_;
  Cursor out_;
};

}  // namespace lockstep
