#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace lockstep::gpu {

/// Memory of one device, and of the host for copies to and from it.
class DeviceAllocator {
 public:
  virtual ~DeviceAllocator() = default;
  /// Error(internal) with the requested and the free bytes.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) noexcept = 0;
  /// The same for memory that peers may access, as communication libraries need it; may take more
  /// memory than asked for.
  [[nodiscard]] virtual void* allocate_exchanged(std::size_t bytes) { return allocate(bytes); }
  virtual void release_exchanged(void* memory, std::size_t bytes) noexcept {
    release(memory, bytes);
  }
  /// Peak of allocated bytes.
  [[nodiscard]] virtual std::size_t peak_bytes() const noexcept = 0;
  /// Host memory for fast copies to and from the device.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void release_host(void* memory) noexcept = 0;
};

enum class MemoryPlace {
  device,
  exchanged,  ///< device memory, for communication
  host        ///< host memory, for copies
};

/// An allocation of a device, or of host memory for its copies.
template <typename T>
class DeviceArray final {
 public:
  using Place = MemoryPlace;
  DeviceArray() = default;
  DeviceArray(DeviceAllocator& device, std::size_t count, Place place = Place::device)
      : device_(&device), place_(place), count_(count), data_(static_cast<T*>(allocate())) {}
  DeviceArray(DeviceArray&& other) noexcept { swap(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    swap(other);
    return *this;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() {
    if (data_ == nullptr) return;
    switch (place_) {
      case Place::device:
        device_->release(data_, bytes());
        break;
      case Place::exchanged:
        device_->release_exchanged(data_, bytes());
        break;
      case Place::host:
        device_->release_host(data_);
        break;
    }
  }

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return count_ * sizeof(T); }
  [[nodiscard]] std::span<T> span() const noexcept { return {data_, count_}; }

 private:
  [[nodiscard]] void* allocate() {
    switch (place_) {
      case Place::device:
        return device_->allocate(bytes());
      case Place::exchanged:
        return device_->allocate_exchanged(bytes());
      case Place::host:
        return device_->allocate_host(bytes());
    }
    return nullptr;
  }
  void swap(DeviceArray& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(place_, other.place_);
    std::swap(count_, other.count_);
    std::swap(data_, other.data_);
  }

  DeviceAllocator* device_ = nullptr;
  Place place_ = Place::device;
  std::size_t count_ = 0;
  T* data_ = nullptr;
};

}  // namespace lockstep::gpu
