#pragma once

#include "lockstep/comm/cuda_api.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::test {

/// Memory of the stand-in device is the host's under another address, which nobody can read or
/// write by accident.
[[nodiscard]] void* device_address(const void* host) noexcept;
[[nodiscard]] void* host_address(const void* device) noexcept;
[[nodiscard]] bool is_device_address(const void* address) noexcept;

/// Something a stream makes that takes several attempts.
class StandInTask {
 public:
  virtual ~StandInTask() = default;
  /// True once it is done.
  [[nodiscard]] virtual bool attempt() = 0;
};

/// Streams and events as a device has them, but nothing runs before a query: then each stream, the
/// youngest first, runs until something in it is not ready. Work takes as many queries as its
/// delay says, so what is not ordered by events comes in the wrong order.
class StandInQueues final {
 public:
  struct Delays {
    int kernel = 2;
    int copy = 2;
    int task = 3;
  };
  /// A query is an error, as in a capture.
  bool capturing = false;
  Delays delays;

  [[nodiscard]] CudaStream create_stream();
  void destroy_stream(CudaStream stream) noexcept;
  [[nodiscard]] bool is_idle(CudaStream stream);
  [[nodiscard]] CudaEvent create_event();
  void destroy_event(CudaEvent event) noexcept;
  [[nodiscard]] bool is_done(CudaEvent event);

  void record(CudaEvent event, CudaStream stream);
  void wait(CudaStream stream, CudaEvent event);
  /// Addresses as the host sees them.
  void copy(void* to, const void* from, std::size_t bytes, CudaStream stream);
  void launch(CudaStream stream, std::function<void()> kernel);
  void queue(CudaStream stream, StandInTask& task);

  /// One attempt at everything.
  void sweep();
  /// Streams and events that exist.
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

  // Destroyed ones stay: what still refers to them must find them.
  std::deque<Stream> streams_;
  std::deque<Event> events_;
  int live_ = 0;
};

}  // namespace lockstep::test
