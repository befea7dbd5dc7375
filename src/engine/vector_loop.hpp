#pragma once

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace lockstep {

// Loops over values of one kind, divided among threads and compiled three times: for any processor,
// for AVX2 and for AVX-512, whose vectors hold two and four times as many values.

/// Attribute of a loop's call operator, so that each caller compiles it with its own instructions.
#define LOCKSTEP_INLINED __attribute__((always_inline))

namespace vector_loops {

enum class Vectors { baseline, avx2, avx512 };

#if defined(__x86_64__) && defined(__GNUC__)
#define LOCKSTEP_HAS_WIDE_VECTORS
#define LOCKSTEP_AVX2 __attribute__((target("avx2,fma")))
#define LOCKSTEP_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define LOCKSTEP_AVX2
#define LOCKSTEP_AVX512
#endif

/// The widest vectors of this processor.
[[nodiscard]] Vectors widest() noexcept;
/// "AVX-512"
[[nodiscard]] std::string_view name_of(Vectors vectors) noexcept;

template <typename Loop, typename... Arguments>
LOCKSTEP_AVX2 void run_avx2(const Loop& loop, Arguments... arguments) {
  loop(arguments...);
}
template <typename Loop, typename... Arguments>
LOCKSTEP_AVX512 void run_avx512(const Loop& loop, Arguments... arguments) {
  loop(arguments...);
}
template <typename Loop, typename... Arguments>
void run(const Loop& loop, Arguments... arguments) {
  switch (widest()) {
    case Vectors::avx512:
      return run_avx512(loop, arguments...);
    case Vectors::avx2:
      return run_avx2(loop, arguments...);
    case Vectors::baseline:
      return loop(arguments...);
  }
}

template <int value>
using Constant = std::integral_constant<int, value>;

/// Calls loop(width) with the number of fp32 values of the processor's widest vectors, a constant,
/// but at most `most`.
template <typename Loop>
void run_with_width(int most, const Loop& loop) {
  switch (widest()) {
    case Vectors::avx512:
      return most < 16 ? run_avx512(loop, Constant<8>()) : run_avx512(loop, Constant<16>());
    case Vectors::avx2:
      return run_avx2(loop, Constant<8>());
    case Vectors::baseline:
      return loop(Constant<4>());
  }
}

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
