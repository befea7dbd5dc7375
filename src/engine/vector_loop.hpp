#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>

namespace lockstep {

// A loop over values of one kind, shared out over the threads and compiled twice: for every
// processor that the program runs on, and for those with AVX-512, where a vector holds four times
// as many values.

#if defined(__x86_64__) && defined(__GNUC__)
#define LOCKSTEP_WIDE_VECTORS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
[[nodiscard]] inline bool has_wide_vectors() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
#else
#define LOCKSTEP_WIDE_VECTORS
[[nodiscard]] inline bool has_wide_vectors() noexcept {
  return false;
}
#endif

/// What a loop's call operator must be, so that it is compiled with each caller's instructions.
#define LOCKSTEP_INLINED __attribute__((always_inline))

template <typename Loop>
LOCKSTEP_WIDE_VECTORS void run_wide(const Loop& loop, std::ptrdiff_t begin, std::ptrdiff_t end) {
  loop(begin, end);
}

/// Calls loop(begin, end) once a thread, with its part of [0, size); short ones in the calling
/// thread alone.
template <typename Loop>
void vector_loop(std::ptrdiff_t size, const Loop& loop) {
  constexpr std::ptrdiff_t line = 64;  // values; no two threads write to one cache line
  constexpr std::ptrdiff_t shortest = 16384;
  static const bool wide = has_wide_vectors();
#pragma omp parallel if (size > shortest)
  {
    const std::ptrdiff_t lines = (size + line - 1) / line;
    const std::ptrdiff_t threads = omp_get_num_threads();
    const std::ptrdiff_t thread = omp_get_thread_num();
    const std::ptrdiff_t begin = std::min(size, lines * thread / threads * line);
    const std::ptrdiff_t end = std::min(size, lines * (thread + 1) / threads * line);
    if (wide) {
      run_wide(loop, begin, end);
    } else {
      loop(begin, end);
    }
  }
}

}  // namespace lockstep
