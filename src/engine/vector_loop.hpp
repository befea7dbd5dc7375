#pragma once

#include "lockstep/core/vectors.hpp"

#include <omp.h>

#include <algorithm>
#include <cstddef>

namespace lockstep {

// Loops over values of one kind, divided among threads.

namespace vector_loops {

/// Shorter loops run in the calling thread alone.
inline constexpr std::ptrdiff_t shortest = 16384;

}  // namespace vector_loops

/// Calls loop(begin, end) once per thread, with the thread's part of [0, size). Short loops run in
/// the calling thread alone.
template <typename Loop>
void vector_loop(std::ptrdiff_t size, const Loop& loop) {
  constexpr std::ptrdiff_t line = 64;  // values; no two threads write to one cache line
#pragma omp parallel if (size > vector_loops::shortest)
  {
    const std::ptrdiff_t lines = (size + line - 1) / line;
    const std::ptrdiff_t threads = omp_get_num_threads();
    const std::ptrdiff_t thread = omp_get_thread_num();
    vector_loops::run(loop, std::min(size, lines * thread / threads * line),
                      std::min(size, lines * (thread + 1) / threads * line));
  }
}

/// Calls loop(begin, end, thread) once per thread, with the thread's part of [0, parts), which hold
/// `values` values in total; few values run in the calling thread alone. Returns the threads used.
template <typename Loop>
int vector_parts(std::ptrdiff_t parts, std::ptrdiff_t values, const Loop& loop) {
  int used = 1;
#pragma omp parallel if (values > vector_loops::shortest)
  {
    const int threads = omp_get_num_threads();
    const int thread = omp_get_thread_num();
    if (thread == 0) used = threads;
    vector_loops::run(loop, parts * thread / threads, parts * (thread + 1) / threads, thread);
  }
  return used;
}

}  // namespace lockstep
