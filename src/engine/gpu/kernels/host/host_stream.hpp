#pragma once

#include "../kernels.hpp"

#include <functional>
#include <utility>

namespace lockstep::gpu {

/// The host's Stream: runs work later, in order.
class HostStream {
 public:
  virtual ~HostStream() = default;
  virtual void push(std::function<void()> work) = 0;
};

/// Runs at once if the stream is null.
template <typename Work>
void run_in(Stream stream, Work&& work) {
  if (stream == nullptr) return work();
  static_cast<HostStream*>(stream)->push(std::forward<Work>(work));
}

}  // namespace lockstep::gpu
