#pragma once

#include "lockstep/core/unique_handle.hpp"

#include <unistd.h>

namespace lockstep {

struct DescriptorTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }
  static void destroy(Handle handle) noexcept { ::close(handle); }
};
/// Owns a file descriptor.
using Descriptor = UniqueHandle<DescriptorTraits>;

}  // namespace lockstep
