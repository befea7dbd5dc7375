#pragma once

#include "lockstep/core/precision.hpp"
#include "lockstep/engine/cast_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// An allocation in an engine's memory.
class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;
  [[nodiscard]] virtual std::span<float> values() noexcept = 0;
};

/// Memory in which an engine computes: the host's or a device's. Spans called `host` are in host
/// memory, all others in this memory.
class EngineMemory {
 public:
  virtual ~EngineMemory() = default;

  /// Copy between device and host memory, of equal sizes, after all work that was queued before.
  /// The host buffer may be reused when the call returns.
  virtual void read(std::span<const float> arena, std::span<float> host) = 0;
  virtual void write(std::span<const float> host, std::span<float> arena) = 0;
  /// As write, but only queued: the host buffer must not change until a later read() returns.
  virtual void queue_write(std::span<const float> host, std::span<float> arena) {
    write(host, arena);
  }
  /// As read, but only queued: the host buffer, in memory of InputFormat::memory, is valid once
  /// has_read() is true. One read in flight at most.
  virtual void queue_read(std::span<const float> arena, std::span<float> host) {
    read(arena, host);
  }
  [[nodiscard]] virtual bool has_read() { return true; }
  /// Whether calls only queue work, so that a forward may be queued after an update before the host
  /// knows whether the update is made.
  [[nodiscard]] virtual bool queues() const noexcept { return false; }

  /// Allocates `count` zeros.
  [[nodiscard]] virtual std::shared_ptr<ArenaMemory> allocate(std::size_t count) = 0;
  /// Peak memory in use on a separate device; 0 for host memory.
  [[nodiscard]] virtual std::size_t peak_device_bytes() const noexcept { return 0; }

  /// to += from.
  virtual void add(std::span<const float> from, std::span<float> to) = 0;
  /// to = factor * from.
  virtual void scale(std::span<const float> from, float factor, std::span<float> to) = 0;
  /// Rounds values to bf16 or fp16.
  virtual void cast(std::span<const float> values, Precision type, std::uint16_t* to) = 0;
  /// Buffer for `count` gradients that are reduced as bf16 or fp16.
  [[nodiscard]] virtual std::shared_ptr<CastBuffer> make_cast_buffer(Precision type,
                                                                     std::size_t count) = 0;
};

}  // namespace lockstep
