#pragma once

#include "thread_blocks.hpp"

#include <cstdint>
#include <type_traits>

/// The kernels that run functors on a device. A test compiles them for the host's threads.
namespace lockstep::gpu {

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
  // A barrier follows all reads of `slots`, so the next block may write them.
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
  }
}

/// The threads of a block have threads_per_block / lanes rows, adjacent ones the lanes of a row.
template <typename Functor>
__global__ void __launch_bounds__(threads_per_block)
    run_rows(std::int64_t rows, int lanes, Functor functor) {
  using Partial = typename Functor::Partial;
  __shared__ Partial slots[threads_per_block];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread & (lanes - 1);
  const int together = threads_per_block / lanes;
  const std::int64_t stride = std::int64_t{gridDim.x} * together;
  for (std::int64_t first = std::int64_t{blockIdx.x} * together; first < rows; first += stride) {
    const std::int64_t row = first + thread / lanes;
    Partial own{};
    if (row < rows) own = functor.partial(row, lane);
    slots[thread] = own;
    __syncthreads();
    for (int half = lanes / 2; half > 0; half /= 2) {
      if (lane < half) {
        own.merge(slots[thread + half]);
        slots[thread] = own;
      }
      __syncthreads();
    }
    if (row < rows) functor.finish(row, lane, slots[thread - lane]);
    __syncthreads();
  }
}

}  // namespace lockstep::gpu
