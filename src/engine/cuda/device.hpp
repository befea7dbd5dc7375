#pragma once

#include "convolution_request.hpp"
#include "data_type.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace lockstep::cuda {

/// The passes of a convolution, chosen and bound once. Each queues its work in the device's stream
/// and returns; accumulation is in fp32. The workspace is of at least workspace_bytes().
class Convolution {
 public:
  virtual ~Convolution() = default;
  [[nodiscard]] virtual std::size_t workspace_bytes() const noexcept = 0;
  virtual void forward(const void* x, const void* weights, void* y, void* workspace) = 0;
  virtual void backward_data(const void* dy, const void* weights, void* dx, void* workspace) = 0;
  /// What backward_weights writes.
  [[nodiscard]] virtual DataType weight_gradient_type() const noexcept = 0;
  virtual void backward_weights(const void* x, const void* dy, void* dw, void* workspace) = 0;
};
enum class ConvolutionPasses { forward, forward_and_weights, all };

/// A point in a queue, for others to wait for.
class Event {
 public:
  virtual ~Event() = default;
};

/// Work that was recorded, to be queued again in one call.
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void queue() = 0;
};

/// One device with two queues: its work goes through one, and copies that go on beside it through
/// the other. The CUDA device is the one there is; tests put the host in its place.
class Device {
 public:
  enum class Queue { work, transfers };
  virtual ~Device() = default;
  /// "NVIDIA H200, 132 SMs, 139 GiB, bus 0000:0a:00.0, CUDA 13.0, cuDNN 9.19"
  [[nodiscard]] virtual std::string description() const = 0;
  [[nodiscard]] virtual Stream stream() noexcept = 0;

  /// Error(internal) with what was asked for and what is free.
  [[nodiscard]] virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory, std::size_t bytes) noexcept = 0;
  /// The same for memory that devices may reach for their peers, as libraries of communication want
  /// it; may take more than it is asked for.
  [[nodiscard]] virtual void* allocate_exchanged(std::size_t bytes) { return allocate(bytes); }
  virtual void release_exchanged(void* memory, std::size_t bytes) noexcept {
    release(memory, bytes);
  }
  /// The most that was ever allocated at a time.
  [[nodiscard]] virtual std::size_t peak_bytes() const noexcept = 0;
  /// Host memory that copies to and from the device are fast from.
  [[nodiscard]] virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void release_host(void* memory) noexcept = 0;

  // Queued as work; the host's side must stay as it is until the copy is done.
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void clear(void* memory, std::size_t bytes) = 0;
  /// Queued as a transfer.
  virtual void transfer_to_device(void* to, const void* from, std::size_t bytes) = 0;
  /// Until all work that was queued is done. Error(internal) with the first fault of any of it.
  virtual void synchronize() = 0;

  /// What `work` queues, with its arguments as they are now, but not yet queued. It must not wait,
  /// allocate or do anything else whose effect is not queued, and may be called now or later.
  [[nodiscard]] virtual std::unique_ptr<Replay> record(std::function<void()> work) = 0;

  /// Queues `work` and waits: the seconds it took the device.
  [[nodiscard]] virtual double time(const std::function<void()>& work) = 0;

  /// The host's wait for it gives its core away.
  [[nodiscard]] virtual std::unique_ptr<Event> make_event() = 0;
  /// One that also knows when the device came to it.
  [[nodiscard]] virtual std::unique_ptr<Event> make_timed_event() = 0;
  /// Of two such, both waited for.
  [[nodiscard]] virtual double seconds_between(const Event& begin, const Event& end) = 0;
  /// Moves the event behind all that the queue holds.
  virtual void mark(Event& event, Queue queue) = 0;
  /// What is queued next waits for the event where it stands now; at once where it never stood.
  virtual void queue_wait(Queue queue, const Event& event) = 0;
  /// The host waits. Error(internal) as synchronize().
  virtual void wait(const Event& event) = 0;
  /// Whether it would not have to. Error(internal) as synchronize().
  [[nodiscard]] virtual bool has_reached(const Event& event) = 0;

  /// Error(usage) where no algorithm computes it.
  [[nodiscard]] virtual std::unique_ptr<Convolution> make_convolution(const ConvolutionShape& shape,
                                                                      ConvolutionPasses passes) = 0;
  /// What algorithms are of, and what is asked of them: "NVIDIA H200, 132 SMs, cuDNN 9.19.0".
  [[nodiscard]] virtual std::string algorithm_library() const { return ""; }
  /// The name of the one that computes it fastest, which takes a while to find out; empty where
  /// that is not worth it, or there is no choice. Error(usage) as make_convolution().
  [[nodiscard]] virtual std::string fastest_algorithm(const ConvolutionRequest& /*request*/) {
    return "";
  }
  /// Those by which convolutions are computed that are made from now on; for what is not among
  /// them, or is not to be had, the library's own first choice is taken.
  virtual void take_algorithms(AlgorithmChoices /*choices*/) {}
};

enum class MemoryPlace {
  device,
  exchanged,  ///< of the device, for communication
  host        ///< for copies
};

/// Memory of a device, or of the host for its copies.
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

}  // namespace lockstep::cuda
