#pragma once

#include "kernels/kernels.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep::gpu {

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

/// Two queues of one device: one for work, and one for concurrent copies.
class DeviceQueues {
 public:
  enum class Queue { work, transfers };
  virtual ~DeviceQueues() = default;
  [[nodiscard]] virtual Stream stream() noexcept = 0;
  /// The queue of transfers as a stream.
  [[nodiscard]] virtual Stream transfer_stream() noexcept = 0;

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
};

}  // namespace lockstep::gpu
