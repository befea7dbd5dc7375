#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::gpu::cuda {

struct Gpu {
  const char* name;
  int version;  ///< of its architecture, times 100
  int multiprocessors;
  int shared_memory;  ///< bytes a block may have
  int clock;          ///< kHz
  int memory_clock;   ///< kHz
  std::int64_t l2;    ///< bytes
  std::int64_t memory;
  std::size_t most_generic_fp32;  ///< large convolutions whose first choice is the generic engine
};
inline constexpr Gpu gpus[] = {
    {"NVIDIA A100", 800, 108, 166912, 1410000, 1593000, 41943040, 85094825984, 6},
    {"NVIDIA H100", 900, 132, 232448, 1980000, 2619000, 52428800, 85029158912, 1},
    {"NVIDIA H200", 900, 132, 232448, 1980000, 3201000, 62914560, 150109880320, 1},
    {"NVIDIA B200", 1000, 148, 232448, 1965000, 3996000, 132644864, 191514542080, 17},
};

inline constexpr const Gpu& h200 = gpus[2];

/// A GPU's description for cuDNN.
inline std::string describe(const Gpu& gpu) {
  return fmt::format(
      R"({{
  "deviceName": "{}", "cudaDeviceId": 0, "deviceVer": {}, "driverVer": 13000,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "multiProcessorCount": {}, "warpSize": 32,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {},
  "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "smClockRateKHz": {},
  "memClockRateKHz": {}, "l2CacheSize": {}, "isTccDriver": 0, "supportCoopLaunch": 1,
  "pciDeviceId": 0, "totalGlobalMem": {}}})",
      gpu.name, gpu.version, gpu.multiprocessors, gpu.shared_memory, gpu.clock, gpu.memory_clock,
      gpu.l2, gpu.memory);
}

}  // namespace lockstep::gpu::cuda
