#include "lockstep/core/vectors.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace lockstep::vector_loops {
namespace {

Vectors of_processor() noexcept {
#ifdef LOCKSTEP_HAS_WIDE_VECTORS
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    return Vectors::avx512;
  }
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    return Vectors::avx2;
  }
#endif
  return Vectors::baseline;
}

}  // namespace

Vectors widest() noexcept {
  static const Vectors vectors = [] {
    // Lets tests select narrower vectors.
    const char* const text = std::getenv("LOCKSTEP_TEST_VECTORS");
    const std::string_view asked = text != nullptr ? text : "";
    const Vectors most = asked == "baseline" ? Vectors::baseline
                         : asked == "avx2"   ? Vectors::avx2
                                             : Vectors::avx512;
    return std::min(most, of_processor());
  }();
  return vectors;
}

std::string_view name_of(Vectors vectors) noexcept {
  switch (vectors) {
    case Vectors::avx512:
      return "AVX-512";
    case Vectors::avx2:
      return "AVX2";
    case Vectors::baseline:
      break;
  }
#if defined(__x86_64__)
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "portable";
#endif
}

}  // namespace lockstep::vector_loops
