#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Shows a profiler what the training thread is at; told by that thread alone. Costs nothing to
/// speak of where no profiler looks.
class PhaseMarks {
 public:
  virtual ~PhaseMarks() = default;
  /// Ends what was before it.
  virtual void begin_step(std::int64_t step) noexcept = 0;
  /// A part of the step that has begun, or, where `outside`, what comes between steps. `name` stays
  /// where it is.
  virtual void enter(const char* name, bool outside) noexcept = 0;
  /// A bucket's reduction starts, of a step's from 1.
  virtual void start_bucket(int bucket) noexcept = 0;
};

}  // namespace lockstep
