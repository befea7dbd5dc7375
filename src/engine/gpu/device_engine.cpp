#include "device_engine.hpp"

#include "device_memory.hpp"
#include "device_program.hpp"
#include "device_stopwatch.hpp"
#include "device_timeline.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/step/step_graph.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::gpu {
namespace {

std::shared_ptr<EngineState> make_state(std::shared_ptr<Device> device, const Graph& graph,
                                        const DeviceEngineOptions& options) {
  const DataType type = storage_of(options.precision);
  require_complete(graph);
  ParameterArena arena =
      make_parameter_arena(device, graph, {.tail_size = options.tail_size, .units = options.units});
  WorkingParameters working(*device, arena, type);
  InputQueue input(*device, graph.input_shape()[0],
                   options.decodes ? std::make_unique<BatchDecoder>(*device) : nullptr);
  auto stopwatch = std::make_shared<DeviceStopwatch>(*device);
  return std::make_shared<EngineState>(
      EngineState{.device = std::move(device),
                  .graph = graph,
                  .type = type,
                  .tf32 = options.precision == Precision::tf32,
                  .gpu = options.gpu,
                  .norms = options.norms,
                  .records = options.records,
                  .recompute = options.recompute,
                  .arena = std::move(arena),
                  .working = std::move(working),
                  .input = std::move(input),
                  .running_statistics = initial_running_statistics(graph),
                  .activations = {},
                  .computed_by = nullptr,
                  .timeline = nullptr,
                  .stopwatch = std::move(stopwatch)});
}

class PinnedMemory final : public HostMemory {
 public:
  explicit PinnedMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  [[nodiscard]] void* allocate(std::size_t bytes) override { return device_->allocate_host(bytes); }
  void release(void* memory) noexcept override { device_->release_host(memory); }

 private:
  std::shared_ptr<Device> device_;
};

class DeviceEngine final : public Engine {
 public:
  DeviceEngine(std::shared_ptr<Device> device, const Graph& graph,
               const DeviceEngineOptions& options)
      : state_(make_state(std::move(device), graph, options)),
        pinned_(state_->device),
        memory_(state_->device),
        precision_(options.precision) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, {}, {}", state_->device->description(), to_string(precision_),
                       state_->records ? "CUDA graphs" : "no CUDA graphs");
  }
  [[nodiscard]] const Graph& graph() const noexcept override { return state_->graph; }
  [[nodiscard]] InputFormat input_format() noexcept override {
    return {.layout = ImageLayout::nhwc,
            .content = ImageContent::pixels,
            .memory = &pinned_,
            .decoding = state_->input.decoding()};
  }
  void prefetch(const Batch& batch) override { state_->input.begin(batch); }
  void await_copy() override { state_->input.await_taken(); }
  void discard(const Batch& batch) override { state_->input.discard(batch); }
  [[nodiscard]] EngineMemory& memory() noexcept override { return memory_; }
  [[nodiscard]] std::shared_ptr<const ParameterArena> arena() const noexcept override {
    return {state_, &state_->arena};
  }
  [[nodiscard]] std::span<float> running_statistics() noexcept override {
    return state_->running_statistics.span();
  }
  void set_step_timer(StepTimer& timer) override {
    if (!state_->timeline) state_->timeline = std::make_shared<DeviceTimeline>();
    state_->timeline->set_timer(timer);
  }
  void report_steps() override {
    if (state_->timeline) state_->timeline->report(*state_->device);
  }
  [[nodiscard]] double take_device_seconds() override { return state_->stopwatch->take(); }
  [[nodiscard]] std::unique_ptr<Program> compile(const ProgramOptions& options) override {
    return std::make_unique<DeviceProgram>(state_, options);
  }

 private:
  std::shared_ptr<EngineState> state_;
  PinnedMemory pinned_;
  DeviceMemory memory_;
  Precision precision_;
};

}  // namespace

std::unique_ptr<Engine> make_device_engine(std::shared_ptr<Device> device, const Graph& graph,
                                           const DeviceEngineOptions& options) {
  return std::make_unique<DeviceEngine>(std::move(device), graph, options);
}

}  // namespace lockstep::gpu
