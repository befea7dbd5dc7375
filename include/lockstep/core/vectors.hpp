#pragma once

#include <string_view>
#include <type_traits>

namespace lockstep {

// Code compiled three times: for any processor, for AVX2 and for AVX-512, whose vectors hold two
// and four times as many values.

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

}  // namespace vector_loops
}  // namespace lockstep
