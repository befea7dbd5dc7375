#pragma once

#include "comm/stand_in_queues.hpp"
#include "engine/gpu/host_device.hpp"

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>

namespace lockstep::test {

/// A host device's queues as streams of the NCCL stand-in, so that only events order kernels,
/// copies and collectives.
class NcclHostQueues final : public gpu::HostQueues {
 public:
  using Queue = gpu::Device::Queue;
  /// `work`: the compute stream that NCCL's communicators are made for.
  NcclHostQueues(StandInQueues& queues, CudaStream work)
      : queues_(queues), work_(work), transfers_(queues.create_stream()) {}
  NcclHostQueues(const NcclHostQueues&) = delete;
  NcclHostQueues& operator=(const NcclHostQueues&) = delete;
  ~NcclHostQueues() override { queues_.destroy_stream(transfers_); }

  void push(Queue queue, std::function<void()> work) override {
    // Delays some work, so that a collective that does not wait for it runs first.
    queues_.delays.kernel = ++pushed_ % 4 == 0 ? 2 : 0;
    queues_.launch(of(queue), std::move(work));
  }
  [[nodiscard]] std::shared_ptr<gpu::HostPoint> mark(Queue queue) override {
    return std::make_shared<Point>(queues_, of(queue));
  }
  void wait(Queue queue, std::shared_ptr<gpu::HostPoint> point) override {
    queues_.wait(of(queue), static_cast<const Point&>(*point).event());
  }
  void attach(std::shared_ptr<gpu::HostMemory> memory) override {
    if (!memory->is_guarded()) return;
    queues_.access = [memory] { return std::make_shared<gpu::HostMemory::Access>(*memory); };
  }
  void set_capturing(bool capturing) override { queues_.refusing = capturing; }
  void finish(Queue queue) override {
    while (!queues_.is_idle(of(queue))) std::this_thread::yield();
  }

 private:
  class Point final : public gpu::HostPoint {
   public:
    Point(StandInQueues& queues, CudaStream stream)
        : queues_(queues), event_(queues.create_event()) {
      queues_.record(event_, stream);
    }
    Point(const Point&) = delete;
    Point& operator=(const Point&) = delete;
    ~Point() override { queues_.destroy_event(event_); }
    [[nodiscard]] CudaEvent event() const noexcept { return event_; }
    void wait() override {
      while (!queues_.is_done(event_)) std::this_thread::yield();
    }
    [[nodiscard]] bool reached() override { return queues_.is_done(event_); }

   private:
    StandInQueues& queues_;
    CudaEvent event_;
  };
  [[nodiscard]] CudaStream of(Queue queue) const noexcept {
    return queue == Queue::work ? work_ : transfers_;
  }

  StandInQueues& queues_;
  CudaStream work_;
  CudaStream transfers_;
  std::size_t pushed_ = 0;
};

}  // namespace lockstep::test
