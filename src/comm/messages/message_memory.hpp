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
  /// `receive_buffer_bytes` limits the memory of all receive buffers, each of `piece_bytes`.
  MessageMemory(std::size_t piece_bytes, std::size_t receive_buffer_bytes) {
    const std::size_t count = std::max<std::size_t>(1, receive_buffer_bytes / piece_bytes);
    // Pages that are never written take no memory, and the buffer used last is used first.
    buffers_ = std::make_unique_for_overwrite<std::byte[]>(count * piece_bytes);
    for (std::size_t i = count; i-- > 0;) free_.push_back(buffers_.get() + i * piece_bytes);
  }

  /// Memory for one received message; null if the limit is reached.
  [[nodiscard]] std::byte* take_receive_buffer() noexcept {
    if (free_.empty()) return nullptr;
    std::byte* const buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void give_back_receive_buffer(std::byte* buffer) { free_.push_back(buffer); }

  ReusableBlocks partial_sums;

 private:
  std::unique_ptr<std::byte[]> buffers_;
  std::vector<std::byte*> free_;
};

}  // namespace lockstep
