#pragma once

#include <string_view>

namespace lockstep {

/// What an engine computes activations, their gradients and its working copies of weights in.
/// Parameters, statistics, parameter gradients and optimizer state are fp32 in all of them.
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
