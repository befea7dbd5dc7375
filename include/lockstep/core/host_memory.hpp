#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// Allocates host memory for fast copies to and from a device. Must outlive its allocations.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  /// Uninitialised, aligned to at least 64 bytes; Error(internal) if out of memory.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
};

/// Keeps released memory of another HostMemory for later allocations of the same size. For one
/// thread.
class ReusedHostMemory final : public HostMemory {
 public:
  /// `memory` must outlive this.
  explicit ReusedHostMemory(HostMemory& memory) : memory_(memory) {}
  ReusedHostMemory(const ReusedHostMemory&) = delete;
  ReusedHostMemory& operator=(const ReusedHostMemory&) = delete;
  ~ReusedHostMemory() override {
    for (const Block& block : blocks_) memory_.release(block.memory);
  }
  [[nodiscard]] void* allocate(std::size_t bytes) override {
    for (Block& block : blocks_) {
      if (!block.in_use && block.bytes == bytes) {
        block.in_use = true;
        return block.memory;
      }
    }
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back({.memory = memory_.allocate(bytes), .bytes = bytes});
    return blocks_.back().memory;
  }
  void release(void* memory) noexcept override {
    for (Block& block : blocks_) {
      if (block.memory == memory) block.in_use = false;
    }
  }

 private:
  struct Block {
    void* memory;
    std::size_t bytes;
    bool in_use = true;
  };
  HostMemory& memory_;
  std::vector<Block> blocks_;
};

/// A fixed-size buffer of a trivial type, aligned to 64 bytes and uninitialised. Allocated by
/// `memory`; null: by operator new. Move-only.
template <typename T>
class HostBuffer final {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  HostBuffer() = default;
  HostBuffer(HostMemory* memory, std::size_t size) : memory_(memory), size_(size) {
    if (size == 0) return;
    data_ = static_cast<T*>(memory != nullptr ? memory->allocate(size * sizeof(T))
                                              : ::operator new(size * sizeof(T), alignment));
  }
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() {
    if (data_ == nullptr) return;
    if (memory_ != nullptr) {
      memory_->release(data_);
    } else {
      ::operator delete(data_, alignment);
    }
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }

 private:
  static constexpr std::align_val_t alignment{64};
  void swap(HostBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  HostMemory* memory_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
