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

using Clock = std::chrono::steady_clock;

/// Takes time, but none of the host's.
struct Delay final : StandInTask {
  Clock::duration time{};
  std::optional<Clock::time_point> end = {};
  [[nodiscard]] bool attempt() override {
    const auto now = Clock::now();
    if (!end) end = now + time;
    if (now < *end) return false;
    end.reset();
    return true;
  }
};

/// Each work in the compute stream takes `factor` times as long, however busy the machine is.
class SlowQueues final : public gpu::HostQueues {
 public:
  using Queue = gpu::Device::Queue;
  SlowQueues(Streams& streams, int factor)
      : streams_(streams), inner_(streams.nccl.queues, streams.compute), factor_(factor) {}
  void push(Queue queue, std::function<void()> work) override {
    if (queue != Queue::work) return inner_.push(queue, std::move(work));
    inner_.push(queue, [this, work = std::move(work)] {
      const auto begin = Clock::now();
      work();
      delay_.time = (factor_ - 1) * (Clock::now() - begin);
    });
    streams_.nccl.queues.queue(streams_.compute, delay_);
  }
  [[nodiscard]] std::shared_ptr<gpu::HostPoint> mark(Queue queue) override {
    return inner_.mark(queue);
  }
  void wait(Queue queue, std::shared_ptr<gpu::HostPoint> point) override {
    inner_.wait(queue, std::move(point));
  }
  void attach(std::shared_ptr<gpu::HostMemory> memory) override {
    inner_.attach(std::move(memory));
  }
  void set_capturing(bool capturing) override { inner_.set_capturing(capturing); }
  void finish(Queue queue) override { inner_.finish(queue); }

 private:
  Streams& streams_;
  NcclHostQueues inner_;
  int factor_;
  Delay delay_;
};

class FaultMarks final : public PhaseMarks {
 public:
  explicit FaultMarks(int hanging) : hanging_(hanging) {}
  void begin_step(std::int64_t step) noexcept override { step_ = step; }
  void enter(const char* name, bool /*outside*/) noexcept override {
    if (std::string_view(name) != "backward" || step_ != hanging_) return;
    streams().nccl.queues.queue(streams().compute, hang_);
  }
  void start_bucket(int /*bucket*/) noexcept override {}

 private:
  std::int64_t hanging_;
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
    return gpu::make_host_device(std::make_shared<SlowQueues>(own, planted_fault()->number),
                                 gpu::HostMemoryGuard::on);
  }
  return gpu::make_host_device(std::make_shared<NcclHostQueues>(own.nccl.queues, own.compute),
                               gpu::HostMemoryGuard::on);
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
  if (!planted_fault() || planted_fault()->kind != "hang") return nullptr;
  static FaultMarks marks(planted_fault()->number);
  return &marks;
}

}  // namespace lockstep::test
