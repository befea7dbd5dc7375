#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// A collective of all ranks on one block of `count` values per rank. Reductions are sums.
struct ExchangeOperation {
  const std::byte* from = nullptr;  ///< all blocks, contiguous; if !reduces, only its own block
  std::byte* to = nullptr;          ///< all blocks, contiguous; if !gathers, only its own block
  std::size_t count = 0;            ///< values in a block
  std::size_t total = 0;            ///< values in all blocks; the last blocks may be shorter
  ElementType type = ElementType::f32;
  bool reduces = false;  ///< false: each rank contributes only its own block
  bool gathers = false;  ///< false: each rank receives only its own block
};

/// Collectives that progress only in calls of advance(), which never blocks.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// All ranks must add the same operations in the same order. Do not use `from` and `to` until the
  /// operation has ended; an all-reduce has the same `from` and `to`.
  virtual void add(const ExchangeOperation& operation) = 0;
  /// Progresses all operations as far as the other ranks' progress permits; false if there was
  /// nothing to do.
  virtual bool advance() = 0;
  /// Number of operations that have ended; they end in the order in which they were added.
  [[nodiscard]] virtual std::uint64_t ended() const noexcept = 0;
  [[nodiscard]] virtual std::uint64_t added() const noexcept = 0;
  [[nodiscard]] bool is_idle() const noexcept { return ended() == added(); }
};

}  // namespace lockstep
