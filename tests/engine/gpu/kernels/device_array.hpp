#pragma once

#include "../../../../src/engine/gpu/device.hpp"

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::gpu {

/// What runs the tested kernels, defined by each test program: a GPU, or the host in its place.
[[nodiscard]] Device& kernel_device();
[[nodiscard]] inline Stream kernel_stream() {
  return kernel_device().stream();
}
/// Whether kernels contract products and sums (nvcc does, the host's build does not), so that an
/// update's bits may differ from the CPU's.
[[nodiscard]] bool kernels_contract();

/// Values of the host and their copy in memory of the device, of exactly their size. A kernel gets
/// data(), fresh for each launch: each side is copied when the other has changed.
template <typename T>
class Mirrored {
 public:
  Mirrored() = default;
  explicit Mirrored(std::size_t count, T value = {}) : host_(count, value) {}
  Mirrored(std::initializer_list<T> values) : host_(values) {}
  Mirrored(std::vector<T> values) : host_(std::move(values)) {}
  Mirrored(const Mirrored& other) : host_(other.host()) {}
  Mirrored(Mirrored&&) noexcept = default;
  Mirrored& operator=(Mirrored other) noexcept {
    std::swap(host_, other.host_);
    std::swap(memory_, other.memory_);
    std::swap(newer_, other.newer_);
    return *this;
  }
  ~Mirrored() = default;

  [[nodiscard]] std::size_t size() const { return host_.size(); }
  [[nodiscard]] const std::vector<T>& host() const {
    if (newer_ == Side::device) {
      kernel_device().copy_to_host(host_.data(), memory_.data(), memory_.bytes());
      kernel_device().synchronize();
      newer_ = Side::neither;
    }
    return host_;
  }
  [[nodiscard]] std::vector<T>& host() {
    (void)std::as_const(*this).host();
    newer_ = Side::host;
    return host_;
  }
  [[nodiscard]] const T& operator[](std::size_t i) const { return host()[i]; }
  [[nodiscard]] const T& back() const { return host().back(); }
  [[nodiscard]] auto begin() const { return host().begin(); }
  [[nodiscard]] auto end() const { return host().end(); }

  /// For a kernel that reads.
  [[nodiscard]] const T* data() const {
    if (newer_ == Side::host) {
      if (memory_.size() != host_.size()) memory_ = {kernel_device(), host_.size()};
      kernel_device().copy_to_device(memory_.data(), host_.data(), memory_.bytes());
      kernel_device().synchronize();
      newer_ = Side::neither;
    }
    return memory_.data();
  }
  /// For a kernel that writes.
  [[nodiscard]] T* data() {
    (void)std::as_const(*this).data();
    newer_ = Side::device;
    return memory_.data();
  }
  friend bool operator==(const Mirrored& left, const Mirrored& right) {
    return left.host() == right.host();
  }

 private:
  enum class Side { host, device, neither };
  mutable std::vector<T> host_;
  mutable DeviceArray<T> memory_;
  mutable Side newer_ = Side::host;
};

/// Memory that holds NaN.
[[nodiscard]] inline Mirrored<std::byte> poisoned_bytes(std::size_t count) {
  return Mirrored<std::byte>(count, static_cast<std::byte>(0xFF));
}

}  // namespace lockstep::gpu
