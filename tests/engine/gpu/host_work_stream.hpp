#pragma once

#include "gpu/kernels/host/host_stream.hpp"
#include "host_memory.hpp"
#include "host_queues.hpp"
#include "host_rules.hpp"

#include <boost/core/demangle.hpp>

#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <typeindex>
#include <utility>
#include <vector>

namespace lockstep::gpu {

/// The stream of kernels: pushes to the work queue, or to a recording.
class WorkStream final : public HostStream {
 public:
  using Recording = std::vector<std::function<void()>>;
  WorkStream(HostQueues& queues, const std::shared_ptr<HostMemory>& memory)
      : queues_(queues), memory_(memory) {}

  void push(std::function<void()> work) override {
    if (recording_ != nullptr) return recording_->push_back(std::move(work));
    queue(DeviceQueues::Queue::work, std::move(work));
  }
  void push_kernel(const Kernel& kernel, std::function<void()> work) override {
    const std::type_index functor(kernel.functor);
    if (recording_ == nullptr) {
      ran_.insert(functor);
    } else if (!ran_.contains(functor)) {
      throw std::logic_error("a first run during a capture: " +
                             boost::core::demangle(functor.name()));
    }
    push(std::move(work));
  }
  /// `ran`: whether the pass of a convolution has run.
  void push_pass(bool& ran, std::function<void()> work) {
    if (recording_ != nullptr && !ran) {
      throw std::logic_error("a first run during a capture: a pass of a convolution");
    }
    ran = true;
    push(std::move(work));
  }
  /// Only the work may access device memory.
  void queue(DeviceQueues::Queue queue, std::function<void()> work) {
    queues_.push(queue, [memory = memory_, work = std::move(work)] {
      const HostMemory::Access access(*memory);
      work();
    });
  }
  [[nodiscard]] Recording record(const std::function<void()>& work) {
    capture.begin();
    Recording recording;
    recording_ = &recording;
    queues_.set_capturing(true);
    const auto end = [&] {
      queues_.set_capturing(false);
      recording_ = nullptr;
      capture.end();
    };
    try {
      work();
    } catch (...) {
      end();
      throw;
    }
    end();
    return recording;
  }

  HostCapture capture;

 private:
  HostQueues& queues_;
  std::shared_ptr<HostMemory> memory_;
  std::set<std::type_index> ran_;
  Recording* recording_ = nullptr;
};

/// The queue of transfers as a stream.
class TransferStream final : public HostStream {
 public:
  explicit TransferStream(WorkStream& stream) : stream_(stream) {}
  void push(std::function<void()> work) override {
    stream_.capture.forbid("work in the queue of transfers");
    stream_.queue(DeviceQueues::Queue::transfers, std::move(work));
  }

 private:
  WorkStream& stream_;
};

}  // namespace lockstep::gpu
