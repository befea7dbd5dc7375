#pragma once

#include "lockstep/core/huge_pages.hpp"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace lockstep {

/// A fixed-size buffer of zeroed values of a trivial type, aligned to 64 bytes. Move-only.
template <typename T>
class AlignedBuffer final {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  static constexpr std::size_t alignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size) : size_(size) {
    if (size == 0) return;
    if (size > (std::numeric_limits<std::size_t>::max() - alignment) / sizeof(T)) {
      throw std::bad_alloc();
    }
    // The kernel zeroes each page of a large block when a thread first touches it. Writing zeros
    // here would make one thread touch all pages at once.
    std::size_t space = size * sizeof(T) + alignment;
    memory_.reset(std::calloc(space, 1));
    if (memory_ == nullptr) throw std::bad_alloc();
    advise_huge_pages(memory_.get(), space);
    void* begin = memory_.get();
    data_ = static_cast<T*>(std::align(alignment, size * sizeof(T), begin, space));
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : memory_(std::move(other.memory_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_, size_}; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  struct Free {
    void operator()(void* pointer) const noexcept { std::free(pointer); }
  };
  std::unique_ptr<void, Free> memory_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
