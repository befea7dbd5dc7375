#pragma once

#include "lockstep/core/huge_pages.hpp"

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace lockstep {

/// A fixed number of zeroed values of a trivial type, aligned to 64 bytes. Moves, never copies.
template <typename T>
class AlignedBuffer final {
 public:
  static constexpr std::size_t alignment = 64;

  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size)
      : data_(size == 0 ? nullptr
                        : static_cast<T*>(
                              ::operator new (size * sizeof(T), std::align_val_t{alignment}))),
        size_(size) {
    advise_huge_pages(data_.get(), size_ * sizeof(T));
    std::uninitialized_value_construct_n(data_.get(), size_);
  }

  [[nodiscard]] T* data() noexcept { return data_.get(); }
  [[nodiscard]] const T* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_.get(), size_}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_.get(), size_}; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_.get()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_.get()[i]; }

 private:
  struct Delete {
    void operator()(T* pointer) const noexcept {
      ::operator delete (pointer, std::align_val_t{alignment});
    }
  };
  std::unique_ptr<T, Delete> data_;
  std::size_t size_ = 0;
};

}  // namespace lockstep
