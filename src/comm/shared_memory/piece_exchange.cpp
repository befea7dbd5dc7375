#include "piece_exchange.hpp"

#include "../element_sums.hpp"
#include "lockstep/comm/element_size.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t ring = 8;      ///< pieces per window
constexpr std::size_t tile = 2048;   ///< values summed at once; they fit in a core's private cache
constexpr std::size_t aligned = 16;  ///< slice sizes, except the last, are multiples of this

template <typename T>
void accumulate(std::array<float, tile>& sum, const std::byte* from, std::size_t size,
                bool is_first) {
  const T* values = reinterpret_cast<const T*>(from);
  if (is_first) {
    for (std::size_t i = 0; i < size; ++i) sum[i] = float{values[i]};
  } else {
    for (std::size_t i = 0; i < size; ++i) sum[i] += float{values[i]};
  }
}

}  // namespace

std::size_t PieceExchange::counter_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * sizeof(Counters);
}

PieceExchange::Result PieceExchange::make(Communicator& comm, std::size_t window) {
  auto [memory, reason] =
      SharedSegment::make(comm, {.common = counter_bytes(comm.size()), .a_rank = window});
  if (!memory) return {.exchange = nullptr, .reason = std::move(reason)};
  return {.exchange = std::unique_ptr<PieceExchange>(
              new PieceExchange(std::move(memory), window, comm.rank(), comm.size())),
          .reason = ""};
}

PieceExchange::PieceExchange(std::unique_ptr<SharedSegment> memory, std::size_t window, int rank,
                             int ranks)
    : memory_(std::move(memory)),
      counters_(reinterpret_cast<Counters*>(memory_->common())),
      windows_(memory_->parts()),
      window_(window),
      piece_bytes_(window / ring),
      rank_(rank),
      ranks_(ranks) {
  // Each rank's slice has space for at least `aligned` values of the largest type.
  assert(piece_bytes_ / static_cast<std::size_t>(ranks) >= aligned * sizeof(double));
}

void PieceExchange::add(const Operation& operation) {
  if (added_ - ended_ == flights_.size()) {
    std::vector<Flight> more(2 * flights_.size());
    for (std::uint64_t at = ended_; at < added_; ++at) more[at % more.size()] = flight(at);
    flights_ = std::move(more);
  }
  const std::size_t capacity =
      piece_bytes_ / static_cast<std::size_t>(ranks_) / size_of(operation.type);
  const std::size_t slice = capacity / aligned * aligned;
  const std::uint64_t pieces = (operation.count + slice - 1) / slice;
  flight(added_) = {
      .operation = operation, .slice = slice, .begin = pieces_, .end = pieces_ + pieces};
  pieces_ += pieces;
  ++added_;
  advance();
}

bool PieceExchange::advance() {
  if (ended_ == added_) return false;
  const auto in = [this](const Flight& flight, std::uint64_t piece) { copy_in(flight, piece); };
  const auto sum = [this](const Flight& flight, std::uint64_t piece) { reduce(flight, piece); };
  const auto out = [this](const Flight& flight, std::uint64_t piece) { take_out(flight, piece); };
  Counters& mine = counters_[rank_];
  bool any = false;
  for (bool moved = true; moved;) {
    // A piece's place in the ring is free when all ranks have taken the piece `ring` before it.
    moved = run(in_, lowest(&Counters::taken) + ring, mine.copied, in);
    moved |= run(reduce_, lowest(&Counters::copied), mine.reduced, sum);
    moved |= run(out_, lowest(&Counters::reduced), mine.taken, out);
    any |= moved;
  }
  ended_ = out_.operation;
  return any;
}

template <typename Work>
bool PieceExchange::run(Cursor& cursor, std::uint64_t limit, Counter& counter, Work&& work) {
  bool moved = false;
  while (cursor.operation < added_) {
    const Flight& current = flight(cursor.operation);
    if (cursor.piece == current.end) {
      ++cursor.operation;
      continue;
    }
    if (cursor.piece >= limit) break;
    work(current, cursor.piece);
    ++cursor.piece;
    counter.pieces.store(cursor.piece, std::memory_order_release);
    moved = true;
  }
  return moved;
}

std::uint64_t PieceExchange::lowest(Counter Counters::*counter) const {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (int rank = 0; rank < ranks_; ++rank) {
    least = std::min(least, (counters_[rank].*counter).pieces.load(std::memory_order_acquire));
  }
  return least;
}

PieceExchange::Slice PieceExchange::slice_of(const Flight& flight, std::uint64_t piece, int block) {
  const Operation& operation = flight.operation;
  Slice slice{.within = (piece - flight.begin) * flight.slice};
  slice.begin = static_cast<std::size_t>(block) * operation.count + slice.within;
  if (slice.begin >= operation.total) return slice;
  slice.size =
      std::min({flight.slice, operation.count - slice.within, operation.total - slice.begin});
  return slice;
}

std::byte* PieceExchange::place(int rank, std::uint64_t piece, const Flight& flight, int block) {
  return windows_ + static_cast<std::size_t>(rank) * window_ + piece % ring * piece_bytes_ +
         static_cast<std::size_t>(block) * flight.slice * size_of(flight.operation.type);
}

void PieceExchange::copy_in(const Flight& flight, std::uint64_t piece) {
  const Operation& operation = flight.operation;
  const std::size_t bytes = size_of(operation.type);
  if (operation.reduces) {
    for (int block = 0; block < ranks_; ++block) {
      if (block == rank_) continue;  // no other rank reads it
      const Slice slice = slice_of(flight, piece, block);
      std::memcpy(place(rank_, piece, flight, block), operation.from + slice.begin * bytes,
                  slice.size * bytes);
    }
    return;
  }
  const Slice own = slice_of(flight, piece, rank_);
  const std::byte* const from = operation.from + own.within * bytes;
  std::byte* const to = operation.to + own.begin * bytes;
  std::memcpy(place(rank_, piece, flight, rank_), from, own.size * bytes);
  if (from != to) std::memcpy(to, from, own.size * bytes);
}

void PieceExchange::reduce(const Flight& flight, std::uint64_t piece) {
  const Operation& operation = flight.operation;
  if (!operation.reduces) return;
  const Slice own = slice_of(flight, piece, rank_);
  const std::byte* const mine = operation.from + own.begin * size_of(operation.type);
  std::byte* const output =
      operation.to + (operation.gathers ? own.begin : own.within) * size_of(operation.type);
  with_summed_type(operation.type, [&]<typename T>(T) {
    alignas(line) std::array<float, tile> sum;
    for (std::size_t at = 0; at < own.size; at += tile) {
      const std::size_t size = std::min(tile, own.size - at);
      for (int rank = 0; rank < ranks_; ++rank) {
        const std::byte* const from = rank == rank_ ? mine : place(rank, piece, flight, rank_);
        accumulate<T>(sum, from + at * sizeof(T), size, rank == 0);
      }
      T* const result = reinterpret_cast<T*>(output) + at;
      for (std::size_t i = 0; i < size; ++i) result[i] = T(sum[i]);
      if (!operation.gathers) continue;
      std::memcpy(place(rank_, piece, flight, rank_) + at * sizeof(T), result, size * sizeof(T));
    }
  });
}

void PieceExchange::take_out(const Flight& flight, std::uint64_t piece) {
  const Operation& operation = flight.operation;
  if (!operation.gathers) return;
  const std::size_t bytes = size_of(operation.type);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    const Slice slice = slice_of(flight, piece, rank);
    std::memcpy(operation.to + slice.begin * bytes, place(rank, piece, flight, rank),
                slice.size * bytes);
  }
}

}  // namespace lockstep
