#pragma once

#include "kernels.hpp"
#include "lockstep/core/host_device.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "host/host_stream.hpp"
#endif

/// Two kinds of kernels, each written as a functor that runs on a device and on the host.
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

/// A thread block computes `columns` results, each from the partial results of
/// threads_per_block / columns threads ("lanes"). `columns` is a power of two.
struct ThreadBlocks {
  std::int64_t count = 0;
  int columns = 1;
};
inline constexpr int threads_per_block = 256;
/// How many blocks a large device runs together: three on each of an H100's 132 multiprocessors.
inline constexpr std::int64_t large_device_blocks = 396;

/// Throws Error(internal). In a separate source file, because nvcc cannot read fmt's headers.
[[noreturn]] void fail_launch(const char* name, const char* explanation);

#ifdef __CUDACC__

inline constexpr std::int64_t max_blocks = std::int64_t{1} << 22;

template <typename Functor>
__global__ void __launch_bounds__(threads_per_block)
    run_items(std::int64_t items, Functor functor) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  // One round, unless there are more items than a grid may have threads.
#pragma unroll 1
  for (std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; item < items;
       item += stride) {
    functor(item);
  }
}

/// Blocks that a multiprocessor holds at once: as many as the registers for their sums allow. A
/// functor that needs more of them declares `few_blocks`.
template <typename Functor>
constexpr int resident_blocks() {
  bool few = sizeof(typename Functor::Partial) > 64;
  if constexpr (requires { Functor::few_blocks; }) few = few || Functor::few_blocks;
  return few ? 2 : 3;
}

template <typename Functor>
__global__ void __launch_bounds__(threads_per_block, resident_blocks<Functor>())
    run_blocks(std::int64_t blocks, int columns, Functor functor) {
  using Partial = typename Functor::Partial;
  // An odd number of words, so that equal members of adjacent slots are in different banks.
  using Word = std::conditional_t<alignof(Partial) == sizeof(float), float, double>;
  struct Slot {
    Partial value;
    Word gap[sizeof(Partial) / sizeof(Word) % 2 == 0 ? 1 : 2];
  };
  __shared__ Slot slots[threads_per_block];
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread & (columns - 1);
  const int lane = thread / columns;
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    Partial own = functor.partial(block, column, lane);
    slots[thread].value = own;
    __syncthreads();
    for (int half = threads_per_block / 2; half >= columns; half /= 2) {
      if (thread < half) {
        own.merge(slots[thread + half].value);
        slots[thread].value = own;
      }
      __syncthreads();
    }
    if (lane == 0) functor.finish(block, column, own);
    __syncthreads();
  }
}

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

#else

/// Functors whose traffic depends on the number of items alone declare `item_bytes`.
template <typename Functor>
constexpr std::optional<std::size_t> bytes_of([[maybe_unused]] std::int64_t items) {
  if constexpr (requires { Functor::item_bytes; }) {
    return static_cast<std::size_t>(items) * Functor::item_bytes;
  }
  return std::nullopt;
}

// On the host the last item and block come first, since a device may take them in any order.
template <typename Functor>
void launch(Stream stream, std::int64_t items, const Functor& functor) {
  const HostStream::Kernel kernel{typeid(Functor), bytes_of<Functor>(items)};
  run_kernel_in(stream, kernel, [=] {
#pragma omp parallel for schedule(static) if (items >= 1024)
    for (std::int64_t item = items - 1; item >= 0; --item) functor(item);
  });
}

template <typename Functor>
void launch_blocks(Stream stream, const ThreadBlocks& blocks, const Functor& functor) {
  const HostStream::Kernel kernel{typeid(Functor), std::nullopt};
  run_kernel_in(stream, kernel, [=] {
#pragma omp parallel for schedule(static) if (blocks.count >= 8)
    for (std::int64_t block = blocks.count - 1; block >= 0; --block) {
      std::array<typename Functor::Partial, threads_per_block> partials;
      for (int thread = 0; thread < threads_per_block; ++thread) {
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

#endif

}  // namespace lockstep::gpu
