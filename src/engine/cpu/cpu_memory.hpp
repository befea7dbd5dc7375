#pragma once

#include "lockstep/engine/engine_memory.hpp"

namespace lockstep::cpu {

class CpuMemory final : public EngineMemory {
 public:
  void read(std::span<const float> arena, std::span<float> host) override;
  void write(std::span<const float> host, std::span<float> arena) override;
  [[nodiscard]] std::shared_ptr<ArenaMemory> allocate(std::size_t count) override;
  void add(std::span<const float> from, std::span<float> to) override;
  void scale(std::span<const float> from, float factor, std::span<float> to) override;
  void cast(std::span<const float> values, Precision type, std::uint16_t* to) override;
  [[nodiscard]] std::shared_ptr<CastBuffer> make_cast_buffer(Precision type,
                                                             std::size_t count) override;
};

}  // namespace lockstep::cpu
