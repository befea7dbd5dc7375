#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::gpu {

/// GPUs for which the kernels partition sums alike, so that they give the same bits: those of an
/// architecture, whatever their number of multiprocessors. H100 PCIe (114), H100 SXM, H200 and
/// GH200 (132) and H20 (78) are one class.
enum class GpuClass {
  sm_80,   ///< A100, A30
  sm_90,   ///< and architectures whose GPUs differ too much for one partition: sm_86, sm_89, sm_120
  sm_100,  ///< B200, B300
};

[[nodiscard]] constexpr GpuClass gpu_class(int major, int minor) noexcept {
  if (major == 8 && minor == 0) return GpuClass::sm_80;
  return major == 10 ? GpuClass::sm_100 : GpuClass::sm_90;
}
[[nodiscard]] constexpr std::string_view to_string(GpuClass gpu) noexcept {
  return gpu == GpuClass::sm_80 ? "sm_80" : gpu == GpuClass::sm_90 ? "sm_90" : "sm_100";
}

/// Thread blocks into which large sums are divided: three on each of the 108 multiprocessors of an
/// A100, the 132 of an H100 or the 148 of a B200. The order of additions depends on it, so it must
/// never change for a class.
[[nodiscard]] constexpr std::int64_t blocks_of_sums(GpuClass gpu) noexcept {
  return 3 * (gpu == GpuClass::sm_80 ? 108 : gpu == GpuClass::sm_90 ? 132 : 148);
}

}  // namespace lockstep::gpu
