#include "cuda_device.hpp"

#include "choose_device.hpp"
#include "cudnn_convolution.hpp"
#include "lockstep/core/error.hpp"
#include "nvjpeg_library.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::gpu::cuda {
namespace {

constexpr double gib = 1 << 30;

struct CudaEvent final : Event {
  UniqueEvent handle;
};
cudaEvent_t handle_of(const Event& event) {
  return static_cast<const CudaEvent&>(event).handle.get();
}

class CudaReplay final : public Replay {
 public:
  CudaReplay(UniqueGraphExec graph, cudaStream_t stream)
      : graph_(std::move(graph)), stream_(stream) {}
  void queue() override { LOCKSTEP_CUDA_CHECK(cudaGraphLaunch(graph_.get(), stream_)); }

 private:
  UniqueGraphExec graph_;
  cudaStream_t stream_;
};

UniqueStream make_stream() {
  cudaStream_t stream = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return UniqueStream(stream);
}

int use_device(const DeviceOptions& options) {
  int visible = 0;
  LOCKSTEP_CUDA_CHECK(cudaGetDeviceCount(&visible));
  const int device = choose_device(options.local_rank, options.local_size, visible);
  LOCKSTEP_CUDA_CHECK(cudaSetDevice(device));
  return device;
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

DeviceIdentity identify(int device, const cudaDeviceProp& properties) {
  std::array<char, 32> bus_id{};
  LOCKSTEP_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), device));
  return {.uuid = uuid_text(properties.uuid),
          .bus_id = bus_id.data(),
          .gpu = gpu_class(properties.major, properties.minor)};
}

std::string cudnn_text() {
  const auto version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string describe(const cudaDeviceProp& properties, const DeviceIdentity& identity) {
  int runtime = 0;
  LOCKSTEP_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
  return fmt::format("{}, {} SMs, {:.0f} GiB, bus {}, CUDA {}.{}, {}", properties.name,
                     properties.multiProcessorCount,
                     static_cast<double>(properties.totalGlobalMem) / gib, identity.bus_id,
                     runtime / 1000, runtime % 1000 / 10, cudnn_text());
}

[[noreturn]] void fail_for_memory(std::size_t bytes) {
  std::size_t free = 0;
  std::size_t total = 0;
  LOCKSTEP_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  fail(ExitStatus::internal,
       "cannot allocate {:.2f} GiB on the GPU ({:.2f} of {:.2f} GiB are free); use a smaller "
       "--batch-size, or see whether another process holds memory",
       static_cast<double>(bytes) / gib, static_cast<double>(free) / gib,
       static_cast<double>(total) / gib);
}

}  // namespace

CudaDevice::CudaDevice(const DeviceOptions& options, MemorySource* exchanged)
    : exchanged_(exchanged) {
  const int device = use_device(options);
  cudaDeviceProp properties{};
  LOCKSTEP_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  if (properties.major < 8) {
    fail(ExitStatus::usage,
         "{} has compute capability {}.{} (8.0 is the oldest supported); use a newer GPU, or "
         "--device cpu",
         properties.name, properties.major, properties.minor);
  }
  identity_ = identify(device, properties);
  description_ = describe(properties, identity_);
  stream_ = make_stream();
  transfers_ = make_stream();
  convolutions_ = std::make_unique<CudnnConvolutions>(
      stream_.get(), options.plans,
      fmt::format("{}, {} SMs, {}{}", properties.name, properties.multiProcessorCount, cudnn_text(),
                  options.plans.deterministic ? ", deterministic" : ""));
}

void CudaDevice::count(std::size_t bytes) noexcept {
  bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
}

void* CudaDevice::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail_for_memory(bytes);
  }
  check(status, "cudaMalloc");
  count(bytes);
  return memory;
}

void CudaDevice::release(void* memory, std::size_t bytes) noexcept {
  (void)cudaFree(memory);
  bytes_ -= bytes;
}

void* CudaDevice::allocate_exchanged(std::size_t bytes) {
  if (exchanged_ == nullptr || bytes == 0) return allocate(bytes);
  void* const memory = exchanged_->allocate(bytes);
  if (memory == nullptr) fail_for_memory(bytes);
  count(bytes);
  return memory;
}

void CudaDevice::release_exchanged(void* memory, std::size_t bytes) noexcept {
  if (exchanged_ == nullptr) return release(memory, bytes);
  exchanged_->release(memory);
  bytes_ -= bytes;
}

void* CudaDevice::allocate_host(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail(ExitStatus::internal,
         "cannot allocate {:.2f} GiB of pinned host memory (the host is out of memory, or the "
         "limit of locked memory is reached); ask for more memory, or start fewer ranks on a host",
         static_cast<double>(bytes) / gib);
  }
  check(status, "cudaHostAlloc");
  return memory;
}

void CudaDevice::release_host(void* memory) noexcept {
  (void)cudaFreeHost(memory);
}

void CudaDevice::copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                      cudaStream_t stream) {
  if (bytes != 0) LOCKSTEP_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, stream));
}

void CudaDevice::clear(void* memory, std::size_t bytes) {
  if (bytes != 0) LOCKSTEP_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream_.get()));
}

void CudaDevice::synchronize() {
  // The first check finds a failed launch, the second a kernel that failed.
  LOCKSTEP_CUDA_CHECK(cudaGetLastError());
  LOCKSTEP_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
}

std::unique_ptr<Replay> CudaDevice::record(std::function<void()> work) {
  // Captures only this thread's calls: loader threads go on reading and pinning.
  LOCKSTEP_CUDA_CHECK(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  try {
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(stream_.get(), &captured);
    if (captured != nullptr) (void)cudaGraphDestroy(captured);
    (void)cudaGetLastError();  // the exception reports what ended the capture
    throw;
  }
  LOCKSTEP_CUDA_CHECK(cudaStreamEndCapture(stream_.get(), &captured));
  const UniqueGraph graph(captured);
  cudaGraphExec_t executable = nullptr;
  LOCKSTEP_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  return std::make_unique<CudaReplay>(UniqueGraphExec(executable), stream_.get());
}

std::unique_ptr<Event> CudaDevice::make_event() {
  auto event = std::make_unique<CudaEvent>();
  event->handle = make_cuda_event(cudaEventDisableTiming | cudaEventBlockingSync);
  return event;
}

std::unique_ptr<Event> CudaDevice::make_timed_event() {
  auto event = std::make_unique<CudaEvent>();
  event->handle = make_cuda_event(cudaEventBlockingSync);
  return event;
}

double CudaDevice::seconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  LOCKSTEP_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, handle_of(begin), handle_of(end)));
  return static_cast<double>(milliseconds) * 1e-3;
}

void CudaDevice::mark(Event& event, Queue queue) {
  LOCKSTEP_CUDA_CHECK(cudaEventRecord(handle_of(event), stream_of(queue)));
}

void CudaDevice::queue_wait(Queue queue, const Event& event) {
  LOCKSTEP_CUDA_CHECK(cudaStreamWaitEvent(stream_of(queue), handle_of(event), 0));
}

void CudaDevice::wait(const Event& event) {
  LOCKSTEP_CUDA_CHECK(cudaGetLastError());
  LOCKSTEP_CUDA_CHECK(cudaEventSynchronize(handle_of(event)));
}

bool CudaDevice::has_reached(const Event& event) {
  LOCKSTEP_CUDA_CHECK(cudaGetLastError());
  const cudaError_t status = cudaEventQuery(handle_of(event));
  if (status == cudaErrorNotReady) {
    // Clears the last error: "not ready" is not an error.
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

JpegLibrary& CudaDevice::jpeg_library() {
  if (jpeg_library_ == nullptr) {
    int device = 0;
    LOCKSTEP_CUDA_CHECK(cudaGetDevice(&device));
    jpeg_library_ = load_nvjpeg(device);
  }
  return *jpeg_library_;
}

}  // namespace lockstep::gpu::cuda
