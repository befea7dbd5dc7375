#include "launch.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep::gpu {

void fail_launch(const char* name, const char* explanation) {
  fail(ExitStatus::internal, "a kernel cannot be launched: {} ({})", explanation, name);
}

}  // namespace lockstep::gpu
