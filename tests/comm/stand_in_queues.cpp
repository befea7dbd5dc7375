#include "comm/stand_in_queues.hpp"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::test {
namespace {

// User-space addresses do not use this bit.
constexpr std::uintptr_t device_bit = std::uintptr_t{1} << 62;

/// The stream or event of a handle; throws if it is destroyed.
template <typename T>
T& alive(void* handle) {
  T& object = *static_cast<T*>(handle);
  if (!object.alive) throw std::logic_error("a destroyed stream or event is used");
  return object;
}

}  // namespace

void* device_address(const void* host) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(host) | device_bit);
}
void* host_address(const void* device) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(device) & ~device_bit);
}
bool is_device_address(const void* address) noexcept {
  return (reinterpret_cast<std::uintptr_t>(address) & device_bit) != 0;
}

void StandInQueues::require(const char* call) const {
  if (refusing) throw std::logic_error(std::string(call) + " during a capture");
}

CudaStream StandInQueues::create_stream() {
  require("cudaStreamCreate");
  ++live_;
  streams_.emplace_back().operations.reserve(1024);  // so that later operations do not allocate
  return &streams_.back();
}
void StandInQueues::destroy_stream(CudaStream stream) noexcept {
  require("cudaStreamDestroy");
  --live_;
  alive<Stream>(stream).alive = false;
}
bool StandInQueues::is_idle(CudaStream stream) {
  require("cudaStreamQuery");
  sweep();
  const auto& queue = alive<Stream>(stream);
  return queue.next == queue.operations.size();
}

CudaEvent StandInQueues::create_event() {
  require("cudaEventCreate");
  ++live_;
  return &events_.emplace_back();
}
void StandInQueues::destroy_event(CudaEvent event) noexcept {
  require("cudaEventDestroy");
  --live_;
  alive<Event>(event).alive = false;
}
bool StandInQueues::is_done(CudaEvent event) {
  require("cudaEventQuery");
  sweep();
  const auto& asked = alive<Event>(event);
  return asked.completed >= asked.recorded;
}

void StandInQueues::record(CudaEvent event, CudaStream stream) {
  require("cudaEventRecord");
  auto* const recorded = &alive<Event>(event);
  alive<Stream>(stream).operations.push_back(
      {.kind = Operation::Kind::record, .event = recorded, .version = ++recorded->recorded});
}
void StandInQueues::wait(CudaStream stream, CudaEvent event) {
  require("cudaStreamWaitEvent");
  auto* const awaited = &alive<Event>(event);
  alive<Stream>(stream).operations.push_back(
      {.kind = Operation::Kind::wait, .event = awaited, .version = awaited->recorded});
}
void StandInQueues::copy(void* to, const void* from, std::size_t bytes, CudaStream stream) {
  require("cudaMemcpyAsync");
  alive<Stream>(stream).operations.push_back({.kind = Operation::Kind::copy,
                                              .delay = delays.copy,
                                              .to = to,
                                              .from = from,
                                              .bytes = bytes});
}
void StandInQueues::launch(CudaStream stream, std::function<void()> kernel) {
  require("a launch");
  alive<Stream>(stream).operations.push_back(
      {.kind = Operation::Kind::kernel, .delay = delays.kernel, .kernel = std::move(kernel)});
}
void StandInQueues::queue(CudaStream stream, StandInTask& task) {
  require("a collective");
  alive<Stream>(stream).operations.push_back(
      {.kind = Operation::Kind::task, .delay = delays.task, .task = &task});
}

void StandInQueues::sweep() {
  const std::shared_ptr<void> accessible = access ? access() : nullptr;
  for (auto stream = streams_.rbegin(); stream != streams_.rend(); ++stream) {
    auto& [operations, next, alive] = *stream;
    while (next < operations.size() && run(operations[next])) ++next;
    if (next == operations.size()) {
      operations.clear();
      next = 0;
    }
  }
}

bool StandInQueues::run(Operation& operation) {
  if (operation.delay > 0) {
    --operation.delay;
    return false;
  }
  switch (operation.kind) {
    case Operation::Kind::record:
      operation.event->completed = operation.version;
      return true;
    case Operation::Kind::wait:
      return operation.event->completed >= operation.version;
    case Operation::Kind::copy:
      std::memcpy(operation.to, operation.from, operation.bytes);
      return true;
    case Operation::Kind::kernel:
      operation.kernel();
      return true;
    case Operation::Kind::task:
      return operation.task->attempt();
  }
  return true;
}

}  // namespace lockstep::test
