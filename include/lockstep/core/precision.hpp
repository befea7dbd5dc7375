#pragma once

#include <string_view>

namespace lockstep {

/// Data type of an engine's activations, their gradients and its working copies of weights.
/// Parameters, statistics, parameter gradients and optimizer state are always fp32.
enum class Precision { fp32, tf32, bf16, fp16 };

[[nodiscard]] constexpr std::string_view to_string(Precision precision) noexcept {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
  }
  return "";
}

}  // namespace lockstep
