#pragma once

#include "lockstep/core/precision.hpp"

#include <string_view>

namespace lockstep::gpu {

/// Peak rates by NVIDIA's data sheets, of the SXM boards: A100 80 GB, H100, H200, B200.
struct GpuSpec {
  std::string_view name;  ///< "h200"
  std::string_view title;
  double memory_rate;  ///< bytes/s
  // Operations/s without sparsity; a multiplication and an addition are two.
  double fp32_rate;
  double tf32_rate;
  double half_rate;  ///< bf16 and fp16

  [[nodiscard]] double rate(Precision precision) const noexcept;
};

/// Error(usage) if it is unknown.
[[nodiscard]] const GpuSpec& gpu_spec(std::string_view name);

}  // namespace lockstep::gpu
