#pragma once

namespace lockstep::test {

/// Whether a sanitizer needs more address space than a test may allow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

/// Whether loops run in several threads; under ThreadSanitizer they do not.
#ifdef _OPENMP
constexpr bool parallel_loops = true;
#else
constexpr bool parallel_loops = false;
#endif

}  // namespace lockstep::test
