#include "cpu_memory.hpp"

#include "lockstep/core/aligned_buffer.hpp"

#include <algorithm>

namespace lockstep::cpu {
namespace {

class HostArena final : public ArenaMemory {
 public:
  explicit HostArena(std::size_t count) : buffer_(count) {}
  [[nodiscard]] std::span<float> values() noexcept override { return buffer_.span(); }

 private:
  AlignedBuffer<float> buffer_;
};

}  // namespace

void CpuMemory::read(std::span<const float> arena, std::span<float> host) {
  std::ranges::copy(arena, host.begin());
}

void CpuMemory::write(std::span<const float> host, std::span<float> arena) {
  std::ranges::copy(host, arena.begin());
}

std::shared_ptr<ArenaMemory> CpuMemory::allocate(std::size_t count) {
  return std::make_shared<HostArena>(count);
}

void CpuMemory::add(std::span<const float> from, std::span<float> to) {
  const float* const source = from.data();
  float* const target = to.data();
  const auto size = static_cast<std::ptrdiff_t>(to.size());
#pragma omp parallel for simd schedule(static)
  for (std::ptrdiff_t i = 0; i < size; ++i) target[i] += source[i];
}

void CpuMemory::scale(std::span<const float> from, float factor, std::span<float> to) {
  const float* const source = from.data();
  float* const target = to.data();
  const auto size = static_cast<std::ptrdiff_t>(to.size());
#pragma omp parallel for simd schedule(static)
  for (std::ptrdiff_t i = 0; i < size; ++i) target[i] = factor * source[i];
}

void CpuMemory::cast(std::span<const float> values, Precision type, std::uint16_t* to) {
  cast_on_host(values, type, to);
}

std::shared_ptr<CastBuffer> CpuMemory::make_cast_buffer(Precision type, std::size_t count) {
  return make_host_cast_buffer(type, count);
}

}  // namespace lockstep::cpu
