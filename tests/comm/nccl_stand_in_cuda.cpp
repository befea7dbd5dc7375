#include "comm/nccl_stand_in.hpp"

#include <cstdlib>

/// The CUDA calls of NcclStandIn.
namespace lockstep::test {
namespace {

constexpr CudaResult invalid_value{1};
constexpr CudaResult memory_allocation{2};
constexpr CudaResult illegal_address{700};
constexpr CudaResult capture_unsupported{900};

}  // namespace

CudaResult NcclStandIn::stream_create(CudaStream* stream) {
  *stream = queues.create_stream();
  return CudaResult::success;
}
void NcclStandIn::stream_destroy(CudaStream stream) noexcept {
  queues.destroy_stream(stream);
}
CudaResult NcclStandIn::stream_query(CudaStream stream) {
  if (queues.capturing) return capture_unsupported;
  if (faults.device_fails) return illegal_address;
  return queues.is_idle(stream) ? CudaResult::success : CudaResult::not_ready;
}
CudaResult NcclStandIn::stream_is_capturing(CudaStream /*stream*/, bool* capturing) {
  *capturing = queues.capturing;
  return CudaResult::success;
}
CudaResult NcclStandIn::stream_wait_event(CudaStream stream, CudaEvent event) {
  queues.wait(stream, event);
  return CudaResult::success;
}
CudaResult NcclStandIn::event_create(CudaEvent* event) {
  *event = queues.create_event();
  return CudaResult::success;
}
void NcclStandIn::event_destroy(CudaEvent event) noexcept {
  queues.destroy_event(event);
}
CudaResult NcclStandIn::event_record(CudaEvent event, CudaStream stream) {
  queues.record(event, stream);
  return CudaResult::success;
}
CudaResult NcclStandIn::event_query(CudaEvent event) {
  if (queues.capturing) return capture_unsupported;
  return queues.is_done(event) ? CudaResult::success : CudaResult::not_ready;
}
CudaResult NcclStandIn::device_allocate(void** memory, std::size_t bytes) {
  if (faults.no_memory) return memory_allocation;
  ++counts_.allocated;
  *memory = device_address(std::calloc(bytes, 1));
  return CudaResult::success;
}
void NcclStandIn::device_release(void* memory) noexcept {
  --counts_.allocated;
  std::free(host_address(memory));
}
CudaResult NcclStandIn::host_allocate(void** memory, std::size_t bytes) {
  ++counts_.allocated;
  *memory = std::malloc(bytes);
  return CudaResult::success;
}
void NcclStandIn::host_release(void* memory) noexcept {
  --counts_.allocated;
  std::free(memory);
}
CudaResult NcclStandIn::copy_to_host(void* to, const void* from, std::size_t bytes,
                                     CudaStream stream) {
  if (is_device_address(to) || !is_device_address(from)) return invalid_value;
  queues.copy(to, host_address(from), bytes, stream);
  return CudaResult::success;
}
CudaResult NcclStandIn::copy_to_device(void* to, const void* from, std::size_t bytes,
                                       CudaStream stream) {
  if (!is_device_address(to) || is_device_address(from)) return invalid_value;
  queues.copy(host_address(to), from, bytes, stream);
  return CudaResult::success;
}
std::string NcclStandIn::error_string(CudaResult result) const {
  return "CUDA error " + std::to_string(static_cast<int>(result));
}

}  // namespace lockstep::test
