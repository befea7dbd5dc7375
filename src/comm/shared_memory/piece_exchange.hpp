#pragma once

#include "../exchange/exchange.hpp"
#include "shared_segment.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Reductions and gathers through shared memory, in pieces of a fixed size. Each rank has a window,
/// which is a ring of pieces. For each piece, a rank
///   1. copies its values into its window, once all ranks have read the previous contents,
///   2. sums its own slice over all windows, once all ranks have copied their values in,
///   3. copies the other ranks' slices out of their windows, once those ranks have summed them.
/// All ranks process the same pieces in the same order, so three counters per rank describe its
/// progress. Nothing here blocks: advance() does the work that is possible now.
class PieceExchange final : public Exchange {
 public:
  using Operation = ExchangeOperation;

  /// Size of all counters in bytes.
  [[nodiscard]] static std::size_t counter_bytes(int ranks);
  struct Result {
    std::unique_ptr<PieceExchange> exchange;
    std::string reason;  ///< why `exchange` is null
  };
  /// Makes an exchange between all ranks of `comm`, with windows of `window` bytes (whole pages).
  /// Collective; all ranks get the same result: null if they cannot share memory.
  [[nodiscard]] static Result make(Communicator& comm, std::size_t window);

  void add(const Operation& operation) override;
  bool advance() override;
  [[nodiscard]] std::uint64_t ended() const noexcept override { return ended_; }
  [[nodiscard]] std::uint64_t added() const noexcept override { return added_; }

 private:
  PieceExchange(std::unique_ptr<SharedSegment> memory, std::size_t window, int rank, int ranks);

  static constexpr std::size_t line = 64;  ///< size of a cache line in bytes
  /// Number of pieces that a rank has finished, over all operations.
  struct alignas(line) Counter {
    std::atomic<std::uint64_t> pieces;
  };
  struct Counters {
    Counter copied;
    Counter reduced;
    Counter taken;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes share it");

  /// An operation in flight.
  struct Flight {
    Operation operation;
    std::size_t slice = 0;    ///< values of each block in one piece
    std::uint64_t begin = 0;  ///< number of its first piece, over all operations
    std::uint64_t end = 0;    ///< one past its last piece
  };
  /// The part of a block in one piece; offsets and sizes in values.
  struct Slice {
    std::size_t begin = 0;   ///< offset from the first block
    std::size_t within = 0;  ///< offset within its block
    std::size_t size = 0;
  };
  [[nodiscard]] static Slice slice_of(const Flight& flight, std::uint64_t piece, int block);
  [[nodiscard]] std::byte* place(int rank, std::uint64_t piece, const Flight& flight, int block);

  void copy_in(const Flight& flight, std::uint64_t piece);
  void reduce(const Flight& flight, std::uint64_t piece);
  void take_out(const Flight& flight, std::uint64_t piece);

  /// Progress of this rank in one of the three phases: its next piece, and that piece's operation.
  struct Cursor {
    std::uint64_t piece = 0;
    std::uint64_t operation = 0;
  };
  /// Does `work` for all pieces below `limit` and publishes their number in `counter`.
  template <typename Work>
  bool run(Cursor& cursor, std::uint64_t limit, Counter& counter, Work&& work);
  [[nodiscard]] std::uint64_t lowest(Counter Counters::*counter) const;
  [[nodiscard]] Flight& flight(std::uint64_t operation) noexcept {
    return flights_[operation % flights_.size()];
  }

  std::unique_ptr<SharedSegment> memory_;
  Counters* counters_;  ///< by rank
  std::byte* windows_;  ///< all ranks' windows, contiguous
  std::size_t window_;
  std::size_t piece_bytes_;
  int rank_;
  int ranks_;
  std::vector<Flight> flights_ = std::vector<Flight>(64);  ///< a ring
  std::uint64_t added_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t pieces_ = 0;  ///< in all operations added so far
  Cursor in_;
  Cursor reduce_;
  Cursor out_;
};

}  // namespace lockstep
