#pragma once

#include "lockstep/core/precision.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// As many 16-bit values as an arena has gradients, in the memory of its engine: what travels of
/// them. Work on it is in the order of the engine's.
class NarrowBuffer {
 public:
  virtual ~NarrowBuffer() = default;
  [[nodiscard]] virtual std::span<std::uint16_t> values() noexcept = 0;
  /// Where the value of place `at` lies.
  [[nodiscard]] std::uint16_t* data(std::size_t at) noexcept { return values().data() + at; }
  /// Rounds the arena's values from place `at` on to 16 bits, and takes them back.
  virtual void narrow(std::span<const float> values, std::size_t at) = 0;
  virtual void widen(std::size_t at, std::span<float> values) = 0;
};

// In host memory; `type` is bf16 or fp16.
void narrow_on_host(std::span<const float> values, Precision type, std::uint16_t* to);
[[nodiscard]] std::shared_ptr<NarrowBuffer> make_host_narrow_buffer(Precision type,
                                                                    std::size_t count);

}  // namespace lockstep
