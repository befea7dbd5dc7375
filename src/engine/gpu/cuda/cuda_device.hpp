#pragma once

#include "../device.hpp"
#include "../device_options.hpp"
#include "cuda_handles.hpp"
#include "time_runs.hpp"

#include <memory>
#include <string>

namespace lockstep::gpu::cuda {

/// One GPU, its memory and one stream per queue. Makes the GPU current for the constructing thread,
/// which is the only one that may use it.
class CudaDevice final : public Device {
 public:
  /// `exchanged` serves allocate_exchanged() and must outlive the device; null: allocate() serves
  /// it. Error(usage) if no GPU is fit for this rank (see choose_device).
  explicit CudaDevice(const DeviceOptions& options, MemorySource* exchanged = nullptr);

  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] const DeviceIdentity& identity() const noexcept { return identity_; }
  [[nodiscard]] Stream stream() noexcept override { return stream_.get(); }
  [[nodiscard]] Stream transfer_stream() noexcept override { return transfers_.get(); }
  [[nodiscard]] ConvolutionLibrary& convolutions() override { return *convolutions_; }
  [[nodiscard]] JpegLibrary& jpeg_library() override;

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void release(void* memory, std::size_t bytes) noexcept override;
  [[nodiscard]] void* allocate_exchanged(std::size_t bytes) override;
  void release_exchanged(void* memory, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t peak_bytes() const noexcept override { return peak_bytes_; }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override;
  void release_host(void* memory) noexcept override;

  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice, stream_.get());
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get());
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream_.get());
  }
  void clear(void* memory, std::size_t bytes) override;
  void transfer_to_device(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice, transfers_.get());
  }
  void synchronize() override;

  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()> work) override;
  [[nodiscard]] double time(const std::function<void()>& work) override {
    return time_runs(stream_.get(), 1, work).front();
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override;
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override;
  [[nodiscard]] double seconds_between(const Event& begin, const Event& end) override;
  void mark(Event& event, Queue queue) override;
  void queue_wait(Queue queue, const Event& event) override;
  void wait(const Event& event) override;
  [[nodiscard]] bool has_reached(const Event& event) override;

 private:
  [[nodiscard]] cudaStream_t stream_of(Queue queue) const noexcept {
    return queue == Queue::work ? stream_.get() : transfers_.get();
  }

  void count(std::size_t bytes) noexcept;
  static void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                   cudaStream_t stream);

  MemorySource* exchanged_;
  DeviceIdentity identity_;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::string description_;
  UniqueStream stream_;
  UniqueStream transfers_;
  std::unique_ptr<ConvolutionLibrary> convolutions_;
  std::unique_ptr<JpegLibrary> jpeg_library_;  ///< loaded on first use
};

}  // namespace lockstep::gpu::cuda
