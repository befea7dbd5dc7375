#pragma once

#include "../reusable_blocks.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// Memory of a MessageExchange that MPI writes to or reads from.
class MessageMemory final {
 public:
  /// `landing_bytes` limits the memory of all landings, each of `piece_bytes`.
  MessageMemory(std::size_t piece_bytes, std::size_t landing_bytes) {
    const std::size_t landings = std::max<std::size_t>(1, landing_bytes / piece_bytes);
    // Pages that are never written take no memory, and the landing used last is used first.
    landings_ = std::make_unique_for_overwrite<std::byte[]>(landings * piece_bytes);
    for (std::size_t i = landings; i-- > 0;) free_.push_back(landings_.get() + i * piece_bytes);
  }

  /// Memory for one received message; null if the limit is reached.
  [[nodiscard]] std::byte* take_landing() noexcept {
    if (free_.empty()) return nullptr;
    std::byte* const landing = free_.back();
    free_.pop_back();
    return landing;
  }
  void give_back_landing(std::byte* landing) { free_.push_back(landing); }

  ReusableBlocks partial_sums;

 private:
  std::unique_ptr<std::byte[]> landings_;
  std::vector<std::byte*> free_;
};

}  // namespace lockstep
