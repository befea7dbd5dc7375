#include "host_streams.hpp"

#include "comm/nccl_stand_in.hpp"
#include "comm/on_device.hpp"
#include "engine/gpu/host_device.hpp"
#include "train/nccl_host_queues.hpp"

#include <chrono>
#include <cstdlib>
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
    if (planted_fault() && planted_fault()->kind == "nccl") {
      one->nccl.faults.hanging = planted_fault()->number - 1;
    }
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

class FaultMarks final : public PhaseMarks {
 public:
  explicit FaultMarks(Fault fault) : fault_(std::move(fault)) {
    delay_.time = std::chrono::milliseconds(fault_.number);
  }
  void begin_step(std::int64_t step) noexcept override { step_ = step; }
  void enter(const char* name, bool /*outside*/) noexcept override {
    const std::string_view phase = name;
    if (fault_.kind == "slow" && phase == "backward") add(delay_);
    if (fault_.kind == "hang" && phase == "backward" && step_ == fault_.number) add(hang_);
  }
  void start_bucket(int /*bucket*/) noexcept override {}

 private:
  static void add(StandInTask& task) { streams().nccl.queues.queue(streams().compute, task); }

  Fault fault_;
  std::int64_t step_ = 0;
  Hang hang_;
  Delay delay_;
};

}  // namespace

bool uses_host_streams() {
  return std::getenv("HOST_MODULE_GPU") != nullptr;
}

std::unique_ptr<gpu::Device> make_device_with_streams() {
  Streams& own = streams();
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
