#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// Blocks of memory that are reused, so later steps allocate nothing. Pages that are never written
/// take no memory.
class ReusableBlocks final {
 public:
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    const auto fits = [bytes](const Block& block) { return !block.taken && block.bytes >= bytes; };
    auto block = std::ranges::find_if(blocks_, fits);
    if (block == blocks_.end()) {
      blocks_.push_back(
          {.data = std::make_unique_for_overwrite<std::byte[]>(bytes), .bytes = bytes});
      block = blocks_.end() - 1;
    }
    block->taken = true;
    return block->data.get();
  }
  /// Does nothing for null.
  void give_back(const std::byte* data) noexcept {
    for (Block& block : blocks_) {
      if (block.data.get() == data) block.taken = false;
    }
  }

 private:
  struct Block {
    std::unique_ptr<std::byte[]> data;
    std::size_t bytes = 0;
    bool taken = false;
  };
  std::vector<Block> blocks_;
};

}  // namespace lockstep
