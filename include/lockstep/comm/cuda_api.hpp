#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// A cudaError_t; other values are passed through unchanged.
enum class CudaResult : int { success = 0, not_ready = 600 };
using CudaStream = void*;  ///< a cudaStream_t
using CudaEvent = void*;   ///< a cudaEvent_t

/// The CUDA runtime calls that communication needs, with the semantics of CUDA's documentation, on
/// the calling thread's device. Tests substitute queues in host memory.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  /// Creates a stream of the highest priority that does not synchronize with the default stream.
  [[nodiscard]] virtual CudaResult stream_create(CudaStream* stream) = 0;
  virtual void stream_destroy(CudaStream stream) noexcept = 0;
  /// not_ready while queued work remains.
  [[nodiscard]] virtual CudaResult stream_query(CudaStream stream) = 0;
  [[nodiscard]] virtual CudaResult stream_is_capturing(CudaStream stream, bool* capturing) = 0;
  [[nodiscard]] virtual CudaResult stream_wait_event(CudaStream stream, CudaEvent event) = 0;

  /// Creates an event without timing.
  [[nodiscard]] virtual CudaResult event_create(CudaEvent* event) = 0;
  virtual void event_destroy(CudaEvent event) noexcept = 0;
  [[nodiscard]] virtual CudaResult event_record(CudaEvent event, CudaStream stream) = 0;
  /// not_ready until all work queued before the last record is done.
  [[nodiscard]] virtual CudaResult event_query(CudaEvent event) = 0;

  [[nodiscard]] virtual CudaResult device_allocate(void** memory, std::size_t bytes) = 0;
  virtual void device_release(void* memory) noexcept = 0;
  /// Allocates pinned memory.
  [[nodiscard]] virtual CudaResult host_allocate(void** memory, std::size_t bytes) = 0;
  virtual void host_release(void* memory) noexcept = 0;
  [[nodiscard]] virtual CudaResult copy_to_host(void* to, const void* from, std::size_t bytes,
                                                CudaStream stream) = 0;
  [[nodiscard]] virtual CudaResult copy_to_device(void* to, const void* from, std::size_t bytes,
                                                  CudaStream stream) = 0;

  [[nodiscard]] virtual std::string error_string(CudaResult result) const = 0;
};

}  // namespace lockstep
