#pragma once

#include "../../../src/engine/gpu/device.hpp"
#include "host_convolution_library.hpp"
#include "host_jpeg_library.hpp"
#include "host_memory.hpp"
#include "host_queues.hpp"

#include <cstddef>
#include <memory>

namespace lockstep::gpu {

/// When queued work runs, to emulate fast and slow devices. Transfers are the opposite: those of a
/// fast device run when a caller waits for them, those of a slow device as early as events allow.
enum class HostWork {
  at_once,  ///< before the call that queues it returns
  late      ///< when a caller waits for it
};

/// A Device on the host, for tests. Its memory is initialised to NaN, and convolutions are plain
/// loops that round as a GPU does. Where CUDA forbids a call or leaves it undefined, it throws
/// std::logic_error, or, from a destructor, ends the program:
/// - a call that does not queue work, or a collective, during a capture;
/// - the capture of a kernel or of a convolution's pass that has not run before;
/// - a pass of a convolution that was not made for it;
/// - a destroyed event, stream or convolution that is used, also by replayed work;
/// - a copy whose sides are not the memory that its name says, or not all of one allocation.
[[nodiscard]] std::unique_ptr<Device> make_host_device(
    HostWork when = HostWork::at_once, HostMemoryGuard guard = HostMemoryGuard::off);
[[nodiscard]] std::unique_ptr<Device> make_host_device(
    std::shared_ptr<HostQueues> queues, HostMemoryGuard guard = HostMemoryGuard::off);
/// What a host device was asked for convolutions.
[[nodiscard]] const HostConvolutions& convolutions(const Device& host_device);
/// Number of recordings that a host device has made.
[[nodiscard]] std::size_t recordings(const Device& host_device);
/// Bytes currently allocated on a host device for communication.
[[nodiscard]] std::size_t exchanged_bytes(const Device& host_device);
/// A host device's stand-in for nvJPEG.
[[nodiscard]] HostJpegLibrary& jpeg_library(Device& host_device);
/// Number of operations queued on a host device that have not run yet.
[[nodiscard]] std::size_t work_left(const Device& host_device);
/// A host device's memory is accessible while the result exists; for stand-ins of libraries that
/// communicate.
[[nodiscard]] std::shared_ptr<void> access_memory(Device& host_device);

}  // namespace lockstep::gpu
