#pragma once

#include "gpu/kernels/host/host_stream.hpp"

#include <utility>

namespace lockstep::gpu {

/// Runs at once if the stream is null.
template <typename Work>
void run_in(Stream stream, Work&& work) {
  if (stream == nullptr) return work();
  static_cast<HostStream*>(stream)->push(std::forward<Work>(work));
}
}  // namespace lockstep::gpu
