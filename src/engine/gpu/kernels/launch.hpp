#pragma once

#include "kernels.hpp"
#include "lockstep/core/host_device.hpp"
#include "thread_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#include "device_kernels.hpp"
#else
#include "host/host_stream.hpp"
#include "host/shuffled.hpp"
#endif

/// Three kinds of kernels, each written as a functor that runs on a device and on the host.
namespace lockstep::gpu {

template <typename T>
LOCKSTEP_HOST_DEVICE constexpr T ceil_div(T value, T divisor) {
  return (value + divisor - 1) / divisor;
}

/// Quotient and remainder of values that fit into 32 bits.
struct Division {
  std::int64_t quotient;
  std::int64_t rest;
};
LOCKSTEP_HOST_DEVICE inline Division divide(std::int64_t value, std::int64_t by) {
  const auto short_value = static_cast<std::uint32_t>(value);
  const auto short_by = static_cast<std::uint32_t>(by);
  const std::uint32_t quotient = short_value / short_by;
  return {quotient, short_value - quotient * short_by};
}

/// Throws Error(internal). In a separate source file, because nvcc cannot read fmt's headers.
[[noreturn]] void fail_launch(const char* name, const char* explanation);

#ifdef __CUDACC__

inline constexpr std::int64_t max_blocks = std::int64_t{1} << 22;

template <typename... Parameters, typename... Arguments>
void launch_kernel(Stream stream, unsigned blocks, void (*kernel)(Parameters...),
                   const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads_per_block);
  config.stream = static_cast<cudaStream_t>(stream);
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // else the next check would report it again
  fail_launch(cudaGetErrorName(status), cudaGetErrorString(status));
}

/// functor(item) for each item in [0, items), in any order.
template <typename Functor>
void launch(Stream stream, std::int64_t items, const Functor& functor) {
  if (items == 0) return;
  const auto blocks =
      static_cast<unsigned>(std::min(ceil_div(items, std::int64_t{threads_per_block}), max_blocks));
  launch_kernel(stream, blocks, run_items<Functor>, items, functor);
}

/// For each block and column: merges functor.partial(block, column, lane) of all lanes in a fixed
/// order, by Partial::merge, and passes the result to functor.finish(block, column, partial).
template <typename Functor>
void launch_blocks(Stream stream, const ThreadBlocks& blocks, const Functor& functor) {
  if (blocks.count == 0) return;
  const auto grid = static_cast<unsigned>(std::min(blocks.count, max_blocks));
  launch_kernel(stream, grid, run_blocks<Functor>, blocks.count, blocks.columns, functor);
}

/// For each row: merges functor.partial(row, lane) of the row's lanes in a fixed order, by
/// Partial::merge, and passes the result to functor.finish(row, lane, partial) in each lane, where
/// the cache still has what the lane has read. `lanes` is a power of two up to threads_per_block.
template <typename Functor>
void launch_rows(Stream stream, std::int64_t rows, int lanes, const Functor& functor) {
  if (rows == 0) return;
  const std::int64_t blocks = ceil_div(rows * lanes, std::int64_t{threads_per_block});
  const auto grid = static_cast<unsigned>(std::min(blocks, max_blocks));
  launch_kernel(stream, grid, run_rows<Functor>, rows, lanes, functor);
}

#else

/// Functors whose traffic depends on the number of items alone declare `item_bytes`.
template <typename Functor>
constexpr std::optional<std::size_t> bytes_of([[maybe_unused]] std::int64_t items) {
  if constexpr (requires { Functor::item_bytes; }) {
    return static_cast<std::size_t>(items) * Functor::item_bytes;
  }
  return std::nullopt;
}

// A device may run blocks and items in any order: the host shuffles blocks and reverses their
// items.
template <typename Functor>
void launch(Stream stream, std::int64_t items, const Functor& functor) {
  const HostStream::Kernel kernel{typeid(Functor), bytes_of<Functor>(items)};
  run_kernel_in(stream, kernel, [=] {
    const std::int64_t blocks = ceil_div(items, std::int64_t{threads_per_block});
    const Shuffled shuffled(blocks);
#pragma omp parallel for schedule(static) if (items >= 1024)
    for (std::int64_t at = 0; at < blocks; ++at) {
      const std::int64_t begin = shuffled[at] * threads_per_block;
      const std::int64_t end = std::min(begin + threads_per_block, items);
      for (std::int64_t item = end - 1; item >= begin; --item) functor(item);
    }
  });
}

template <typename Functor>
void launch_blocks(Stream stream, const ThreadBlocks& blocks, const Functor& functor) {
  const HostStream::Kernel kernel{typeid(Functor), std::nullopt};
  run_kernel_in(stream, kernel, [=] {
    const Shuffled shuffled(blocks.count);
#pragma omp parallel for schedule(static) if (blocks.count >= 8)
    for (std::int64_t at = 0; at < blocks.count; ++at) {
      const std::int64_t block = shuffled[at];
      std::array<typename Functor::Partial, threads_per_block> partials;
      for (int thread = threads_per_block - 1; thread >= 0; --thread) {
        partials[static_cast<std::size_t>(thread)] =
            functor.partial(block, thread % blocks.columns, thread / blocks.columns);
      }
      for (int half = threads_per_block / 2; half >= blocks.columns; half /= 2) {
        for (int thread = 0; thread < half; ++thread) {
          partials[static_cast<std::size_t>(thread)].merge(
              partials[static_cast<std::size_t>(thread + half)]);
        }
      }
      for (int column = 0; column < blocks.columns; ++column) {
        functor.finish(block, column, partials[static_cast<std::size_t>(column)]);
      }
    }
  });
}

template <typename Functor>
void launch_rows(Stream stream, std::int64_t rows, int lanes, const Functor& functor) {
  const HostStream::Kernel kernel{typeid(Functor), std::nullopt};
  run_kernel_in(stream, kernel, [=] {
    const Shuffled shuffled(rows);
#pragma omp parallel for schedule(static) if (rows >= 64)
    for (std::int64_t at = 0; at < rows; ++at) {
      const std::int64_t row = shuffled[at];
      std::array<typename Functor::Partial, threads_per_block> partials;
      for (int lane = lanes - 1; lane >= 0; --lane) {
        partials[static_cast<std::size_t>(lane)] = functor.partial(row, lane);
      }
      for (int half = lanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) {
          partials[static_cast<std::size_t>(lane)].merge(
              partials[static_cast<std::size_t>(lane + half)]);
        }
      }
      for (int lane = lanes - 1; lane >= 0; --lane) functor.finish(row, lane, partials[0]);
    }
  });
}

#endif

}  // namespace lockstep::gpu
