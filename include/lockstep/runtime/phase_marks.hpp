#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Marks the training thread's phases for a profiler. Called only by that thread. The cost is
/// negligible when no profiler is attached.
class PhaseMarks {
 public:
  virtual ~PhaseMarks() = default;
  /// Also ends the previous step or phase.
  virtual void begin_step(std::int64_t step) noexcept = 0;
  /// A phase of the current step begins or, if `outside`, one between steps. `name` must have
  /// static lifetime.
  virtual void enter(const char* name, bool outside) noexcept = 0;
  /// A bucket's reduction starts; buckets of a step count from 1.
  virtual void start_bucket(int bucket) noexcept = 0;
};

}  // namespace lockstep
