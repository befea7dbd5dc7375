#include "device_memory.hpp"

#include <utility>

namespace lockstep::gpu {
namespace {

class DeviceCastBuffer final : public CastBuffer {
 public:
  DeviceCastBuffer(std::shared_ptr<Device> device, DataType type, std::size_t count)
      : device_(std::move(device)), type_(type), values_(*device_, count) {}
  [[nodiscard]] std::span<std::uint16_t> values() noexcept override {
    return {values_.data(), values_.size()};
  }
  void store(std::span<const float> values, std::size_t at) override {
    convert(device_->stream(), values.data(), DataType::f32, data(at), type_, values.size());
  }
  void load(std::size_t at, std::span<float> values) override {
    convert(device_->stream(), data(at), type_, values.data(), DataType::f32, values.size());
  }

 private:
  std::shared_ptr<Device> device_;
  DataType type_;
  DeviceArray<std::uint16_t> values_;
};

}  // namespace

DeviceArena::DeviceArena(std::shared_ptr<Device> device, std::size_t count, MemoryPlace place)
    : device_(std::move(device)), array_(*device_, count, place) {
  device_->clear(array_.data(), array_.bytes());
}

DeviceMemory::DeviceMemory(std::shared_ptr<Device> device)
    : device_(std::move(device)), read_(device_->make_event()) {}

void DeviceMemory::read(std::span<const float> arena, std::span<float> host) {
  device_->copy_to_host(host.data(), arena.data(), arena.size_bytes());
  device_->synchronize();
}

void DeviceMemory::write(std::span<const float> host, std::span<float> arena) {
  queue_write(host, arena);
  device_->synchronize();
}

void DeviceMemory::queue_write(std::span<const float> host, std::span<float> arena) {
  device_->copy_to_device(arena.data(), host.data(), host.size_bytes());
}

void DeviceMemory::queue_read(std::span<const float> arena, std::span<float> host) {
  device_->copy_to_host(host.data(), arena.data(), arena.size_bytes());
  device_->mark(*read_, Device::Queue::work);
}

std::shared_ptr<ArenaMemory> DeviceMemory::allocate(std::size_t count) {
  return std::make_shared<DeviceArena>(device_, count);
}

void DeviceMemory::add(std::span<const float> from, std::span<float> to) {
  gpu::add(device_->stream(), DataType::f32, to.data(), from.data(), to.data(), to.size());
}

void DeviceMemory::scale(std::span<const float> from, float factor, std::span<float> to) {
  gpu::scale(device_->stream(), from.data(), factor, to.data(), to.size());
}

void DeviceMemory::cast(std::span<const float> values, Precision type, std::uint16_t* to) {
  convert(device_->stream(), values.data(), DataType::f32, to, storage_of(type), values.size());
}

std::shared_ptr<CastBuffer> DeviceMemory::make_cast_buffer(Precision type, std::size_t count) {
  return std::make_shared<DeviceCastBuffer>(device_, storage_of(type), count);
}

}  // namespace lockstep::gpu
