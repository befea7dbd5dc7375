#include "host_device.hpp"

#include "host_memory.hpp"
#include "host_rules.hpp"
#include "host_work_stream.hpp"
#include "late_queues.hpp"

#include <chrono>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

namespace lockstep::gpu {
namespace {

struct HostEvent final : Event {
  explicit HostEvent(std::shared_ptr<LiveObjects> all) : alive(std::move(all)) {}
  Liveness alive;
  bool timed = false;
  std::shared_ptr<HostPoint> point;  ///< null: never marked
  /// When the queue reached the mark.
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

class HostReplay final : public Replay {
 public:
  HostReplay(WorkStream& stream, std::shared_ptr<LiveObjects> all, WorkStream::Recording recording)
      : stream_(stream), all_(std::move(all)), recording_(std::move(recording)) {}
  void queue() override {
    all_->require(&stream_, "the stream of a recording");
    stream_.capture.forbid("Replay::queue");
    for (const std::function<void()>& each : recording_) stream_.push(each);
  }

 private:
  WorkStream& stream_;
  std::shared_ptr<LiveObjects> all_;
  WorkStream::Recording recording_;
};

class HostDevice final : public Device {
 public:
  HostDevice(std::shared_ptr<HostQueues> queues, HostMemoryGuard guard)
      : queues_(std::move(queues)),
        memory_(std::make_shared<HostMemory>(guard)),
        stream_(*queues_, memory_),
        transfer_stream_(stream_) {
    live_->add(&stream_);
    queues_->attach(memory_);
  }
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;
  ~HostDevice() override { live_->remove(&stream_); }

  [[nodiscard]] std::size_t work_left() const noexcept { return queues_->left(); }
  [[nodiscard]] std::size_t exchanged_bytes() const noexcept { return memory_->exchanged_bytes(); }
  [[nodiscard]] HostMemory& memory() noexcept { return *memory_; }
  [[nodiscard]] std::string description() const override { return "the host as a device"; }
  [[nodiscard]] Stream stream() noexcept override { return static_cast<HostStream*>(&stream_); }
  [[nodiscard]] Stream transfer_stream() noexcept override {
    return static_cast<HostStream*>(&transfer_stream_);
  }
  [[nodiscard]] HostConvolutionLibrary& convolutions() override { return convolutions_; }
  [[nodiscard]] HostJpegLibrary& jpeg_library() override { return jpeg_library_; }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    stream_.capture.forbid("Device::allocate");
    return memory_->allocate(bytes, MemoryPlace::device);
  }
  void release(void* memory, std::size_t bytes) noexcept override {
    release(memory, bytes, MemoryPlace::device, "Device::release");
  }
  [[nodiscard]] void* allocate_exchanged(std::size_t bytes) override {
    stream_.capture.forbid("Device::allocate_exchanged");
    return memory_->allocate(bytes, MemoryPlace::exchanged);
  }
  void release_exchanged(void* memory, std::size_t bytes) noexcept override {
    release(memory, bytes, MemoryPlace::exchanged, "Device::release_exchanged");
  }
  [[nodiscard]] std::size_t peak_bytes() const noexcept override { return memory_->peak_bytes(); }
  [[nodiscard]] void* allocate_host(std::size_t bytes) override {
    stream_.capture.forbid("Device::allocate_host");
    return memory_->allocate(bytes, MemoryPlace::host);
  }
  void release_host(void* memory) noexcept override {
    stream_.capture.forbid_or_end("Device::release_host");
    finish_all();
    memory_->release_host(memory);
  }

  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    memory_->require_device(to, bytes, "Device::copy_to_device");
    memory_->require_host(from, bytes, "Device::copy_to_device");
    copy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    memory_->require_host(to, bytes, "Device::copy_to_host");
    memory_->require_device(from, bytes, "Device::copy_to_host");
    copy(to, from, bytes);
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    memory_->require_device(to, bytes, "Device::copy_on_device");
    memory_->require_device(from, bytes, "Device::copy_on_device");
    copy(to, from, bytes);
  }
  void clear(void* memory, std::size_t bytes) override {
    memory_->require_device(memory, bytes, "Device::clear");
    if (bytes != 0) stream_.push([=] { std::memset(memory, 0, bytes); });
  }
  void transfer_to_device(void* to, const void* from, std::size_t bytes) override {
    stream_.capture.forbid("Device::transfer_to_device");
    memory_->require_device(to, bytes, "Device::transfer_to_device");
    memory_->require_host(from, bytes, "Device::transfer_to_device");
    if (bytes != 0) stream_.queue(Queue::transfers, [=] { std::memcpy(to, from, bytes); });
  }
  void synchronize() override {
    stream_.capture.forbid("Device::synchronize");
    const auto access = access_for_queued_work();
    queues_->finish(Queue::work);
  }
  [[nodiscard]] std::unique_ptr<Event> make_event() override {
    stream_.capture.forbid("Device::make_event");
    return std::make_unique<HostEvent>(live_);
  }
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override {
    stream_.capture.forbid("Device::make_timed_event");
    auto event = std::make_unique<HostEvent>(live_);
    event->timed = true;
    return event;
  }
  [[nodiscard]] double seconds_between(const Event& begin, const Event& end) override {
    const auto time = [this](const Event& event) {
      const HostEvent& timed = existing(event);
      if (!timed.timed) throw std::logic_error("the time of an event that is not timed");
      if (timed.time == nullptr || *timed.time == std::chrono::steady_clock::time_point()) {
        throw std::logic_error("the time of an event that the device has not reached");
      }
      return *timed.time;
    };
    return std::chrono::duration<double>(time(end) - time(begin)).count();
  }
  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()> work) override {
    ++recordings_;
    return std::make_unique<HostReplay>(stream_, live_, stream_.record(work));
  }
  [[nodiscard]] double time(const std::function<void()>& work) override {
    synchronize();
    const auto begin = std::chrono::steady_clock::now();
    work();
    synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void mark(Event& event, Queue queue) override {
    stream_.capture.forbid("Device::mark");
    auto& marked = const_cast<HostEvent&>(existing(event));
    if (marked.timed) {
      marked.time = std::make_shared<std::chrono::steady_clock::time_point>();
      queues_->push(queue, [time = marked.time] { *time = std::chrono::steady_clock::now(); });
    }
    marked.point = queues_->mark(queue);
  }
  void queue_wait(Queue queue, const Event& event) override {
    stream_.capture.forbid("Device::queue_wait");
    if (const auto& point = existing(event).point; point != nullptr) queues_->wait(queue, point);
  }
  void wait(const Event& event) override {
    stream_.capture.forbid("Device::wait");
    const auto access = access_for_queued_work();
    if (const auto& point = existing(event).point; point != nullptr) point->wait();
  }
  /// Each query also runs one operation.
  [[nodiscard]] bool has_reached(const Event& event) override {
    stream_.capture.forbid("Device::has_reached");
    const auto& point = existing(event).point;
    return point == nullptr || point->reached();
  }
  [[nodiscard]] const HostConvolutions& asked() const noexcept { return convolutions_.asked(); }
  [[nodiscard]] std::size_t recordings() const noexcept { return recordings_; }

 private:
  /// Makes memory accessible once for all work that a wait runs. Null if no work is queued: the
  /// time of an event must be close to the end of the wait for it.
  [[nodiscard]] std::unique_ptr<HostMemory::Access> access_for_queued_work() const {
    return queues_->left() > 0 ? std::make_unique<HostMemory::Access>(*memory_) : nullptr;
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) stream_.push([=] { std::memmove(to, from, bytes); });
  }
  /// Like cudaFree, waits for all work that may use the memory.
  void release(void* memory, std::size_t bytes, MemoryPlace place, const char* call) noexcept {
    stream_.capture.forbid_or_end(call);
    finish_all();
    memory_->release(memory, bytes, place);
  }
  void finish_all() noexcept {
    const auto access = access_for_queued_work();
    queues_->finish(Queue::work);
    queues_->finish(Queue::transfers);
  }
  [[nodiscard]] const HostEvent& existing(const Event& event) const {
    const auto& host_event = static_cast<const HostEvent&>(event);
    live_->require(&host_event.alive, "an event");
    return host_event;
  }

  std::shared_ptr<HostQueues> queues_;
  std::shared_ptr<HostMemory> memory_;
  std::shared_ptr<LiveObjects> live_ = std::make_shared<LiveObjects>();
  WorkStream stream_;
  TransferStream transfer_stream_;
  HostJpegLibrary jpeg_library_;
  HostConvolutionLibrary convolutions_{stream_, memory_, live_};
  std::size_t recordings_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_host_device(HostWork when, HostMemoryGuard guard) {
  return make_host_device(std::make_shared<LateQueues>(when), guard);
}
std::unique_ptr<Device> make_host_device(std::shared_ptr<HostQueues> queues,
                                         HostMemoryGuard guard) {
  return std::make_unique<HostDevice>(std::move(queues), guard);
}

const HostConvolutions& convolutions(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).asked();
}

std::size_t recordings(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).recordings();
}

std::size_t exchanged_bytes(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).exchanged_bytes();
}

HostJpegLibrary& jpeg_library(Device& host_device) {
  return dynamic_cast<HostDevice&>(host_device).jpeg_library();
}

std::size_t work_left(const Device& host_device) {
  return dynamic_cast<const HostDevice&>(host_device).work_left();
}

std::shared_ptr<void> access_memory(Device& host_device) {
  return std::make_shared<HostMemory::Access>(dynamic_cast<HostDevice&>(host_device).memory());
}

}  // namespace lockstep::gpu
