#pragma once

#include "../kernels.hpp"

#include <functional>
#include <utility>

namespace lockstep::cuda {

/// What a Stream points to on the host: work that runs later, in its order.
class HostStream {
 public:
  virtual ~HostStream() = default;
  virtual void push(std::function<void()> work) = 0;
};

/// In a stream of null at once.
template <typename Work>
void run_in(Stream stream, Work&& work) {
  if (stream == nullptr) return work();
  static_cast<HostStream*>(stream)->push(std::forward<Work>(work));
}

}  // namespace lockstep::cuda
