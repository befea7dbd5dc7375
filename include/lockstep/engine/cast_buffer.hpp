#pragma once

#include "lockstep/core/precision.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// 16-bit copies of an arena's gradients, in the engine's memory, for communication. Casts are
/// queued in order with the engine's work.
class CastBuffer {
 public:
  virtual ~CastBuffer() = default;
  [[nodiscard]] virtual std::span<std::uint16_t> values() noexcept = 0;
  /// Address of the value at index `at`.
  [[nodiscard]] std::uint16_t* data(std::size_t at) noexcept { return values().data() + at; }
  /// Casts `values` to 16 bits and stores them from index `at` on; load() casts them back.
  virtual void store(std::span<const float> values, std::size_t at) = 0;
  virtual void load(std::size_t at, std::span<float> values) = 0;
};

// In host memory; `type` is bf16 or fp16.
void cast_on_host(std::span<const float> values, Precision type, std::uint16_t* to);
[[nodiscard]] std::shared_ptr<CastBuffer> make_host_cast_buffer(Precision type, std::size_t count);

}  // namespace lockstep
