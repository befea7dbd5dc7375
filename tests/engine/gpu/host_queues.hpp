#pragma once

#include "../../../src/engine/gpu/device_queues.hpp"
#include "host_memory.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::gpu {

/// A point in a queue.
class HostPoint {
 public:
  virtual ~HostPoint() = default;
  virtual void wait() = 0;
  [[nodiscard]] virtual bool reached() = 0;
};

/// The two queues of a host device. An implementation decides when their work runs.
class HostQueues {
 public:
  virtual ~HostQueues() = default;
  virtual void push(DeviceQueues::Queue queue, std::function<void()> work) = 0;
  /// The current end of the queue.
  [[nodiscard]] virtual std::shared_ptr<HostPoint> mark(DeviceQueues::Queue queue) = 0;
  /// Later work of the queue runs after the point is reached.
  virtual void wait(DeviceQueues::Queue queue, std::shared_ptr<HostPoint> point) = 0;
  /// The memory of the device, which work may access.
  virtual void attach(std::shared_ptr<HostMemory> /*memory*/) {}
  /// A capture of the work queue begins or ends.
  virtual void set_capturing(bool /*capturing*/) {}
  /// Number of operations that have not run yet.
  [[nodiscard]] virtual std::size_t left() const noexcept { return 0; }
  /// Blocks until the queue is empty.
  virtual void finish(DeviceQueues::Queue queue) = 0;
};

}  // namespace lockstep::gpu
