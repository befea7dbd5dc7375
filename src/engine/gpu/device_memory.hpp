#pragma once

#include "device.hpp"
#include "lockstep/core/host_memory.hpp"
#include "lockstep/engine/engine_memory.hpp"

#include <memory>

namespace lockstep::gpu {

/// Zeros in a device's memory.
class DeviceArena final : public ArenaMemory {
 public:
  DeviceArena(std::shared_ptr<Device> device, std::size_t count,
              MemoryPlace place = MemoryPlace::device);
  [[nodiscard]] std::span<float> values() noexcept override { return array_.span(); }

 private:
  std::shared_ptr<Device> device_;
  DeviceArray<float> array_;
};

class DeviceMemory final : public EngineMemory {
 public:
  explicit DeviceMemory(std::shared_ptr<Device> device);
  void read(std::span<const float> arena, std::span<float> host) override;
  void write(std::span<const float> host, std::span<float> arena) override;
  void queue_write(std::span<const float> host, std::span<float> arena) override;
  void queue_read(std::span<const float> arena, std::span<float> host) override;
  [[nodiscard]] bool has_read() override { return device_->has_reached(*read_); }
  [[nodiscard]] bool queues() const noexcept override { return true; }
  [[nodiscard]] std::shared_ptr<ArenaMemory> allocate(std::size_t count) override;
  [[nodiscard]] std::size_t peak_device_bytes() const noexcept override {
    return device_->peak_bytes();
  }
  void add(std::span<const float> from, std::span<float> to) override;
  void scale(std::span<const float> from, float factor, std::span<float> to) override;
  void cast(std::span<const float> values, Precision type, std::uint16_t* to) override;
  [[nodiscard]] std::shared_ptr<CastBuffer> make_cast_buffer(Precision type,
                                                             std::size_t count) override;

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Event> read_;
};

}  // namespace lockstep::gpu
