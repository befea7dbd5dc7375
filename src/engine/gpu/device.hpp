#pragma once

#include "convolution_request.hpp"
#include "data_type.hpp"
#include "jpeg_library.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace lockstep::gpu {

/// The passes of a convolution, each bound to an algorithm. Each queues its work in the device's
/// stream and returns; accumulation is in fp32, and all results are in the type of the values.
/// `workspace` has at least workspace_bytes().
class Convolution {
 public:
  virtual ~Convolution() = default;
  [[nodiscard]] virtual std::size_t workspace_bytes() const noexcept = 0;
  virtual void forward(const void* x, const void* weights, void* y, void* workspace) = 0;
  virtual void backward_data(const void* dy, const void* weights, void* dx, void* workspace) = 0;
  virtual void backward_weights(const void* x, const void* dy, void* dw, void* workspace) = 0;
};
/// The passes that a Convolution may be called for.
struct ConvolutionPasses {
  bool forward = false;
  bool backward_data = false;
  bool backward_weights = false;
};
inline constexpr ConvolutionPasses all_passes{
    .forward = true, .backward_data = true, .backward_weights = true};

/// A point in a queue that others can wait for.
class Event {
 public:
  virtual ~Event() = default;
};

/// Recorded work that one call queues again.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void queue() = 0;
};

/// One device with two queues: one for work, and one for concurrent copies. CudaDevice drives a
/// GPU; tests use a device that runs on the host.
class Device {
 public:
  enum class Queue { work, transfers };
  virtual ~Device() = default;
  /// "NVIDIA H200, 132 SMs, 139 GiB, bus 0000:0a:00.0, CUDA 13.0, cuDNN 9.19"
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual Stream stream() noexcept = 0;
  /// The queue of transfers as a stream.
  [[nodiscard]] virtual Stream transfer_stream() noexcept = 0;

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

  // Queued as work; the host's buffer must not change until the copy is done.
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;
  /// Queued as a transfer.
  virtual void transfer_to_device(void* to, const void* from, std::size_t bytes) = 0;
  /// Blocks until all queued work is done. Error(internal) with the first fault of any of it.
  virtual void synchronize() = 0;

  /// Records what `work` queues, with its current arguments, without queueing it. `work` must not
  /// wait, allocate or have any effect that is not queued, and may be called now or later.
  [[nodiscard]] virtual std::unique_ptr<Replay> record(std::function<void()> work) = 0;

  /// Queues `work` and waits; returns the seconds that the device took.
  [[nodiscard]] virtual double time(const std::function<void()>& work) = 0;

  /// A host thread that waits for this event yields its core.
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
  /// An event that also records the time at which the device reached it.
  [[nodiscard]] virtual std::unique_ptr<Event> make_timed_event() = 0;
  /// For two timed events that the host has waited for.
  [[nodiscard]] virtual double seconds_between(const Event& begin, const Event& end) = 0;
  /// Moves the event to the current end of the queue.
  virtual void mark(Event& event, Queue queue) = 0;
  /// Later work of the queue waits for the event's current mark; no wait if never marked.
  virtual void queue_wait(Queue queue, const Event& event) = 0;
  /// Blocks the host. Error(internal) as synchronize().
  virtual void wait(const Event& event) = 0;
  /// Whether wait() would return at once. Error(internal) as synchronize().
  [[nodiscard]] virtual bool has_reached(const Event& event) = 0;

  /// Lives as long as the device. Error(usage) if images cannot be decoded on the device.
  [[nodiscard]] virtual JpegLibrary& jpeg_library() = 0;

  /// Error(usage) if no algorithm computes it.
  [[nodiscard]] virtual std::unique_ptr<Convolution> make_convolution(const ConvolutionShape& shape,
                                                                      ConvolutionPasses passes) = 0;
  /// Device and library to which names of algorithms apply: "NVIDIA H200, 132 SMs, cuDNN 9.19.0".
  [[nodiscard]] virtual std::string algorithm_library() const { return ""; }
  /// Times the algorithms and returns the fastest one's name; empty if that is not worthwhile or
  /// there is no choice. Error(usage) as make_convolution().
  [[nodiscard]] virtual std::string fastest_algorithm(const ConvolutionRequest& /*request*/) {
    return "";
  }
  /// Sets the algorithms of convolutions made from now on. The library's first choice is used for
  /// requests that are not included, or whose algorithm is not available.
  virtual void set_algorithms(AlgorithmChoices /*choices*/) {}
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
  DeviceArray(Device& device, std::size_t count, Place place = Place::device)
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

  Device* device_ = nullptr;
  Place place_ = Place::device;
  std::size_t count_ = 0;
  T* data_ = nullptr;
};

}  // namespace lockstep::gpu
