#include "host_streams.hpp"

#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "engine/gpu/host_device.hpp"
#include "train/nccl_host_queues.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::test {
namespace {

struct Fault {
  std::string kind;
  int rank = -1;
  int number = 0;
};

/// The fault of HOST_MODULE_GPU, if it names this rank.
const std::optional<Fault>& planted_fault() {
  static const std::optional<Fault> fault = []() -> std::optional<Fault> {
    const char* const text = std::getenv("HOST_MODULE_GPU");
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (text == nullptr || rank == nullptr) return std::nullopt;
    std::istringstream words(text);
    Fault read;
    std::string its_rank;
    std::string number;
    if (!std::getline(words, read.kind, ':') || !std::getline(words, its_rank, ':') ||
        !std::getline(words, number) || its_rank != rank) {
      return std::nullopt;
    }
    read.rank = std::stoi(its_rank);
    read.number = std::stoi(number);
    return read;
  }();
  return fault;
}

/// The stand-in and its compute stream. They live as long as the process, whose end must not wait
/// for the other ranks.
struct Streams {
  NcclStandIn nccl{NcclStandIn::Empty::yes};
  CudaStream compute = nullptr;
};
Streams& streams() {
  static Streams& made = *[] {
    auto* const one = new Streams;
    static_cast<void>(one->nccl.stream_create(&one->compute));
    return one;
  }();
  return made;
}

struct Hang final : StandInTask {
  [[nodiscard]] bool attempt() override { return false; }
};

/// Takes time, but none of the host's.
struct Delay final : StandInTask {
  std::chrono::milliseconds time{};
  std::optional<std::chrono::steady_clock::time_point> end = {};
  [[nodiscard]] bool attempt() override {
    const auto now = std::chrono::steady_clock::now();
    if (!end) end = now + time;
    if (now < *end) return false;
    end.reset();
    return true;
  }
};

/// Adds a delay amid the work of each backward.
class SlowQueues final : public gpu::HostQueues {
 public:
  using Queue = gpu::Device::Queue;
  SlowQueues(Streams& streams, std::chrono::milliseconds time)
      : streams_(streams), inner_(streams.nccl.queues, streams.compute) {
    delay_.time = time;
  }
  void begin_backward() noexcept { left_ = 2; }
  void push(Queue queue, std::function<void()> work) override {
    inner_.push(queue, std::move(work));
    // The first work is the mark of the backward's begin.
    if (queue == Queue::work && left_ > 0 && --left_ == 0) {
      streams_.nccl.queues.queue(streams_.compute, delay_);
    }
  }
  [[nodiscard]] std::shared_ptr<gpu::HostPoint> mark(Queue queue) override {
    return inner_.mark(queue);
  }
  void wait(Queue queue, std::shared_ptr<gpu::HostPoint> point) override {
    inner_.wait(queue, std::move(point));
  }
  void finish(Queue queue) override { inner_.finish(queue); }

 private:
  Streams& streams_;
  NcclHostQueues inner_;
  Delay delay_;
  int left_ = 0;  ///< work until the delay
};

/// Of the device that is slow; null: none.
std::shared_ptr<SlowQueues>& slow_queues() {
  static std::shared_ptr<SlowQueues> queues;
  return queues;
}

class FaultMarks final : public PhaseMarks {
 public:
  explicit FaultMarks(Fault fault) : fault_(std::move(fault)) {}
  void begin_step(std::int64_t step) noexcept override { step_ = step; }
  void enter(const char* name, bool /*outside*/) noexcept override {
    const std::string_view phase = name;
    if (phase != "backward") return;
    if (slow_queues() != nullptr) slow_queues()->begin_backward();
    if (fault_.kind == "hang" && step_ == fault_.number) {
      streams().nccl.queues.queue(streams().compute, hang_);
    }
  }
  void start_bucket(int /*bucket*/) noexcept override {}

 private:
  Fault fault_;
  std::int64_t step_ = 0;
  Hang hang_;
};

}  // namespace

bool uses_host_streams() {
  return std::getenv("HOST_MODULE_GPU") != nullptr;
}

std::unique_ptr<gpu::Device> make_device_with_streams() {
  Streams& own = streams();
  if (planted_fault() && planted_fault()->kind == "slow") {
    slow_queues() =
        std::make_shared<SlowQueues>(own, std::chrono::milliseconds(planted_fault()->number));
    return gpu::make_host_device(slow_queues());
  }
  return gpu::make_host_device(std::make_shared<NcclHostQueues>(own.nccl.queues, own.compute));
}

std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl_with_streams(
    Rendezvous& rendezvous, std::span<const std::vector<int>> sets,
    const NcclCommunicatorOptions& options) {
  Streams& own = streams();
  own.nccl.add(sets);
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators;
  for (auto& made : make_nccl_communicators(own.nccl, rendezvous, own.compute, sets, options)) {
    communicators.push_back(std::make_unique<OnDevice>(std::move(made), OnDevice::Wait::ordered));
  }
  return communicators;
}

std::unique_ptr<DeviceCommunicator> make_staged_with_streams(
    std::unique_ptr<Communicator> host, const StagedCommunicatorOptions& options) {
  Streams& own = streams();
  return std::make_unique<OnDevice>(
      make_staged_communicator(own.nccl, std::move(host), own.compute, options),
      OnDevice::Wait::ordered);
}

PhaseMarks* fault_marks() {
  if (!planted_fault()) return nullptr;
  static FaultMarks marks(*planted_fault());
  return &marks;
}

}  // namespace lockstep::test
