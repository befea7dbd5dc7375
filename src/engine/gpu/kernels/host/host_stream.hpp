#pragma once

#include "../kernels.hpp"

#include <cstddef>
#include <functional>
#include <optional>
#include <typeinfo>
#include <utility>

namespace lockstep::gpu {

/// The host's Stream: runs work later, in order.
class HostStream {
 public:
  struct Kernel {
    const std::type_info& functor;
    std::optional<std::size_t> bytes;  ///< read and written; nullopt: unknown
  };
  virtual ~HostStream() = default;
  virtual void push(std::function<void()> work) = 0;
  virtual void push_kernel(const Kernel& /*kernel*/, std::function<void()> work) {
    push(std::move(work));
  }
};

/// Runs at once if the stream is null.
template <typename Work>
void run_kernel_in(Stream stream, const HostStream::Kernel& kernel, Work&& work) {
  if (stream == nullptr) return work();
  static_cast<HostStream*>(stream)->push_kernel(kernel, std::forward<Work>(work));
}

}  // namespace lockstep::gpu
