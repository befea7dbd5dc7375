#pragma once

#include <chrono>

namespace lockstep {

/// Seconds since 1970.
[[nodiscard]] inline double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep
