#pragma once

#include "lockstep/comm/cuda_api.hpp"
#include "lockstep/core/error.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

struct StreamDestroyer {
  CudaApi* api = nullptr;
  void operator()(void* stream) const noexcept { api->stream_destroy(stream); }
};
struct EventDestroyer {
  CudaApi* api = nullptr;
  void operator()(void* event) const noexcept { api->event_destroy(event); }
};
struct PinnedReleaser {
  CudaApi* api = nullptr;
  void operator()(void* memory) const noexcept { api->host_release(memory); }
};
using StreamHandle = std::unique_ptr<void, StreamDestroyer>;
using EventHandle = std::unique_ptr<void, EventDestroyer>;
using PinnedMemory = std::unique_ptr<void, PinnedReleaser>;

/// Checked CUDA calls of one rank: a failure throws Error(internal) with rank and host.
class CudaCalls final {
 public:
  /// `who`: "rank 3 (node7)".
  CudaCalls(CudaApi& api, std::string who) : api_(api), who_(std::move(who)) {}

  [[nodiscard]] const std::string& who() const noexcept { return who_; }

  [[nodiscard]] StreamHandle make_stream() const {
    CudaStream stream = nullptr;
    check(api_.stream_create(&stream), "cudaStreamCreateWithPriority");
    return {stream, {&api_}};
  }
  [[nodiscard]] EventHandle make_event() const {
    CudaEvent event = nullptr;
    check(api_.event_create(&event), "cudaEventCreateWithFlags");
    return {event, {&api_}};
  }
  [[nodiscard]] PinnedMemory make_pinned(std::size_t bytes) const {
    void* memory = nullptr;
    check(api_.host_allocate(&memory, bytes), "cudaHostAlloc");
    return {memory, {&api_}};
  }

  void record(const EventHandle& event, CudaStream stream) const {
    check(api_.event_record(event.get(), stream), "cudaEventRecord");
  }
  /// Work queued in `stream` from now on runs after the last record of `event`.
  void order_after(CudaStream stream, const EventHandle& event) const {
    check(api_.stream_wait_event(stream, event.get()), "cudaStreamWaitEvent");
  }
  [[nodiscard]] bool is_done(const EventHandle& event) const {
    return is_ready(api_.event_query(event.get()), "cudaEventQuery");
  }
  [[nodiscard]] bool is_idle(CudaStream stream) const {
    return is_ready(api_.stream_query(stream), "cudaStreamQuery");
  }
  [[nodiscard]] bool is_capturing(CudaStream stream) const {
    bool capturing = false;
    check(api_.stream_is_capturing(stream, &capturing), "cudaStreamIsCapturing");
    return capturing;
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, CudaStream stream) const {
    check(api_.copy_to_host(to, from, bytes, stream), "cudaMemcpyAsync to the host");
  }
  void copy_to_device(void* to, const void* from, std::size_t bytes, CudaStream stream) const {
    check(api_.copy_to_device(to, from, bytes, stream), "cudaMemcpyAsync to the device");
  }
  void check(CudaResult result, const char* call) const {
    if (result == CudaResult::success) return;
    fail(ExitStatus::internal, "{} failed on {} ({}); look for earlier errors of this rank", call,
         who_, api_.error_string(result));
  }

 private:
  [[nodiscard]] bool is_ready(CudaResult result, const char* call) const {
    if (result == CudaResult::not_ready) return false;
    check(result, call);
    return true;
  }

  CudaApi& api_;
  std::string who_;
};

}  // namespace lockstep
