#include "gpu_spec.hpp"

#include "lockstep/core/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace lockstep::gpu {
namespace {

constexpr std::array<GpuSpec, 4> specs{{
    {"a100", "NVIDIA A100 80 GB", 2.039e12, 19.5e12, 156e12, 312e12},
    {"h100", "NVIDIA H100", 3.35e12, 67e12, 494.7e12, 989.4e12},
    {"h200", "NVIDIA H200", 4.8e12, 67e12, 494.7e12, 989.4e12},
    {"b200", "NVIDIA B200", 8e12, 75e12, 1125e12, 2250e12},
}};

}  // namespace

double GpuSpec::rate(Precision precision) const noexcept {
  switch (precision) {
    case Precision::fp32:
      return fp32_rate;
    case Precision::tf32:
      return tf32_rate;
    case Precision::bf16:
    case Precision::fp16:
      return half_rate;
  }
  return fp32_rate;
}

const GpuSpec& gpu_spec(std::string_view name) {
  const auto found = std::ranges::find(specs, name, &GpuSpec::name);
  if (found != specs.end()) return *found;
  std::vector<std::string_view> names;
  names.reserve(specs.size());
  for (const GpuSpec& spec : specs) names.push_back(spec.name);
  fail(ExitStatus::usage, "--gpu {} is unknown (its rates are not listed); use one of {}", name,
       fmt::join(names, ", "));
}

}  // namespace lockstep::gpu
