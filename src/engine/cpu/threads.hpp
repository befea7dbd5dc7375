#pragma once

#include <omp.h>

namespace lockstep::cpu {

/// Threads of a parallel region: `engine_threads`, or one in a build without OpenMP.
inline int region_threads([[maybe_unused]] int engine_threads) {
#ifdef _OPENMP
  return engine_threads;
#else
  return 1;
#endif
}

/// Sets the number of OpenMP threads of the calling thread while it lives.
class Threads final {
 public:
  /// 0: leaves the number unchanged.
  explicit Threads(int count) : before_(omp_get_max_threads()) {
    if (count > 0) omp_set_num_threads(count);
  }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace lockstep::cpu
