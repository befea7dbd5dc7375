#pragma once

#include "lockstep/core/host_device.hpp"

#include <bit>
#include <cstdint>

namespace lockstep::gpu {

/// Divides 32-bit numbers by a number that is known on the host, in a few instructions. After T.
/// Granlund and P. L. Montgomery, "Division by invariant integers using multiplication", 1994.
class Divisor {
 public:
  explicit Divisor(std::uint32_t divisor)
      : divisor_(divisor),
        first_shift_(divisor > 1 ? 1 : 0),
        second_shift_(divisor > 1 ? static_cast<std::uint32_t>(std::bit_width(divisor - 1)) - 1
                                  : 0) {
    const std::uint64_t above =
        (std::uint64_t{1} << (first_shift_ + second_shift_)) - divisor;  // to a power of two
    multiplier_ = static_cast<std::uint32_t>((above << 32) / divisor + 1);
  }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::uint32_t value() const { return divisor_; }
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::uint32_t quotient(std::uint32_t number) const {
    const auto high = static_cast<std::uint32_t>((std::uint64_t{number} * multiplier_) >> 32);
    return (high + ((number - high) >> first_shift_)) >> second_shift_;
  }

 private:
  std::uint32_t divisor_;
  std::uint32_t first_shift_;
  std::uint32_t second_shift_;
  std::uint32_t multiplier_;
};

}  // namespace lockstep::gpu
