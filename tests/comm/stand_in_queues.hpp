#pragma once

#include "lockstep/comm/cuda_api.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::test {

/// Device memory of the stand-in is host memory under another address, so that an accidental access
/// by the host faults.
[[nodiscard]] void* device_address(const void* host) noexcept;
[[nodiscard]] void* host_address(const void* device) noexcept;
[[nodiscard]] bool is_device_address(const void* address) noexcept;

/// Work of a stream that completes after several attempts.
class StandInTask {
 public:
  virtual ~StandInTask() = default;
  /// Returns true when it is complete.
  [[nodiscard]] virtual bool attempt() = 0;
};

/// Streams and events of a device. Nothing runs before a query: then each stream, the newest first,
/// runs until its next operation is not ready. An operation needs as many queries as its delay, so
/// operations that no event orders run in the wrong order.
class StandInQueues final {
 public:
  struct Delays {
    int kernel = 2;
    int copy = 2;
    int task = 3;
  };
  /// Set during a stream capture, when a query is an error.
  bool capturing = false;
  Delays delays;
  /// Set while a step is captured, which contains neither collectives nor events: any call throws.
  bool refusing = false;
  /// If set, device memory is accessible only while what it returns exists.
  std::function<std::shared_ptr<void>()> access;

  [[nodiscard]] CudaStream create_stream();
  void destroy_stream(CudaStream stream) noexcept;
  [[nodiscard]] bool is_idle(CudaStream stream);
  [[nodiscard]] CudaEvent create_event();
  void destroy_event(CudaEvent event) noexcept;
  [[nodiscard]] bool is_done(CudaEvent event);

  void record(CudaEvent event, CudaStream stream);
  void wait(CudaStream stream, CudaEvent event);
  /// Host addresses.
  void copy(void* to, const void* from, std::size_t bytes, CudaStream stream);
  void launch(CudaStream stream, std::function<void()> kernel);
  void queue(CudaStream stream, StandInTask& task);

  /// Runs every stream as far as it is ready.
  void sweep();
  /// Number of streams and events that are not destroyed.
  [[nodiscard]] int live() const noexcept { return live_; }

 private:
  struct Event {
    long recorded = 0;
    long completed = 0;
    bool alive = true;
  };
  struct Operation {
    enum class Kind { record, wait, copy, kernel, task } kind;
    int delay = 0;
    Event* event = nullptr;
    long version = 0;
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
    std::function<void()> kernel = {};
    StandInTask* task = nullptr;
  };
  struct Stream {
    std::vector<Operation> operations;
    std::size_t next = 0;
    bool alive = true;
  };
  [[nodiscard]] static bool run(Operation& operation);
  void require(const char* call) const;

  // Destroyed streams and events stay, because queued operations may refer to them.
  std::deque<Stream> streams_;
  std::deque<Event> events_;
  int live_ = 0;
};

}  // namespace lockstep::test
