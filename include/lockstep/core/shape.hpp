#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace lockstep {

/// Extents of a tensor, outermost first; at most six axes, no allocation.
class Shape final {
 public:
  static constexpr std::size_t max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents)
      : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) : rank_(extents.size()) {
    assert(rank_ <= max_rank);
    for (std::size_t i = 0; i < rank_; ++i) extents_[i] = extents[i];
  }

  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::int64_t operator[](std::size_t axis) const noexcept {
    assert(axis < rank_);
    return extents_[axis];
  }
  [[nodiscard]] std::span<const std::int64_t> extents() const noexcept {
    return {extents_.data(), rank_};
  }
  /// Number of elements; 1 for a scalar.
  [[nodiscard]] std::int64_t elements() const noexcept {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < rank_; ++i) product *= extents_[i];
    return product;
  }
  /// This shape with the batch axis N in front.
  [[nodiscard]] Shape with_batch(std::int64_t n) const {
    Shape result;
    result.rank_ = rank_ + 1;
    assert(result.rank_ <= max_rank);
    result.extents_[0] = n;
    for (std::size_t i = 0; i < rank_; ++i) result.extents_[i + 1] = extents_[i];
    return result;
  }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, max_rank> extents_{};
  std::size_t rank_ = 0;
};

/// "64x3x7x7"; "scalar" if there are no axes.
[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace lockstep
