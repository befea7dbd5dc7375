#pragma once

#include "device_allocator.hpp"

#include <cstddef>

namespace lockstep::gpu {

/// A value per sample of a batch on the device, at one address for all batches.
template <typename T>
class SampleValues final {
 public:
  SampleValues() = default;
  SampleValues(DeviceAllocator& memory, std::size_t samples) : values_(memory, samples) {}
  /// Null if the batch has none.
  [[nodiscard]] T* data() const noexcept { return given_ ? values_.data() : nullptr; }
  /// `copy(to, from, bytes)` queues the copy of a batch's values; a batch with null has none.
  template <typename Copy>
  void load(const T* from, std::size_t samples, const Copy& copy) {
    given_ = from != nullptr;
    if (given_) copy(values_.data(), from, samples * sizeof(T));
  }

 private:
  DeviceArray<T> values_;
  bool given_ = false;
};

}  // namespace lockstep::gpu
