#include "device_engine.hpp"

#include "device_program.hpp"
#include "device_timeline.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::cuda {
namespace {

std::shared_ptr<EngineState> make_state(std::shared_ptr<Device> device, const Graph& graph,
                                        const DeviceEngineOptions& options) {
  const DataType type = storage_of(options.precision);
  GraphAnalysis analysis = analyse(graph);
  // A norm cannot compute another one's parameter gradients if parameters are available only during
  // their own unit's steps, or if norms sum over ranks.
  const UnitOptions& units = options.units;
  if (!units.holds_parameters || !units.holds_gradients || options.sum_over_ranks) {
    std::ranges::fill(analysis.added_to, std::nullopt);
  }
  ParameterArena arena = make_parameter_arena(device, graph,
                                              {.type = type,
                                               .ready = analysis.ready,
                                               .tail_size = options.tail_size,
                                               .units = options.units});
  WorkingParameters working(*device, arena, type);
  InputQueue input(*device, graph.image().channels);
  return std::make_shared<EngineState>(
      EngineState{.device = std::move(device),
                  .graph = graph,
                  .analysis = std::move(analysis),
                  .type = type,
                  .tf32 = options.precision == Precision::tf32,
                  .sum_over_ranks = options.sum_over_ranks,
                  .records = options.records && !options.sum_over_ranks,
                  .arena = std::move(arena),
                  .working = std::move(working),
                  .input = std::move(input),
                  .running_statistics = initial_running_statistics(graph),
                  .activations = {},
                  .computed_by = nullptr,
                  .exchange = nullptr,
                  .timeline = nullptr});
}

class PinnedMemory final : public HostMemory {
 public:
  explicit PinnedMemory(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  [[nodiscard]] void* allocate(std::size_t bytes) override { return device_->allocate_host(bytes); }
  void release(void* memory) noexcept override { device_->release_host(memory); }

 private:
  std::shared_ptr<Device> device_;
};

class DeviceCastBuffer final : public CastBuffer {
 public:
  DeviceCastBuffer(std::shared_ptr<Device> device, DataType type, std::size_t count)
      : device_(std::move(device)), type_(type), values_(*device_, count) {}
  [[nodiscard]] std::span<std::uint16_t> values() noexcept override {
    return {values_.data(), values_.size()};
  }
  void store(std::span<const float> values, std::size_t at) override {
    convert(device_->stream(), values.data(), DataType::f32, data(at), type_, values.size());
  }
  void load(std::size_t at, std::span<float> values) override {
    convert(device_->stream(), data(at), type_, values.data(), DataType::f32, values.size());
  }

 private:
  std::shared_ptr<Device> device_;
  DataType type_;
  DeviceArray<std::uint16_t> values_;
};

class DeviceEngine final : public Engine {
 public:
  DeviceEngine(std::shared_ptr<Device> device, const Graph& graph,
               const DeviceEngineOptions& options)
      : state_(make_state(std::move(device), graph, options)),
        pinned_(state_->device),
        read_(state_->device->make_event()),
        precision_(options.precision) {}

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, {}, {}", state_->device->description(), to_string(precision_),
                       state_->records ? "CUDA graphs" : "no CUDA graphs");
  }
  [[nodiscard]] const Graph& graph() const noexcept override { return state_->graph; }
  [[nodiscard]] InputFormat input_format() noexcept override {
    return {.layout = ImageLayout::nhwc, .content = ImageContent::pixels, .memory = &pinned_};
  }
  [[nodiscard]] std::size_t peak_device_bytes() const noexcept override {
    return state_->device->peak_bytes();
  }
  void prefetch(const Batch& batch) override { state_->input.begin(batch); }
  [[nodiscard]] const ArenaLayout& layout() const noexcept override {
    return state_->arena.layout();
  }
  [[nodiscard]] std::span<float> parameters() noexcept override {
    return state_->arena.parameters();
  }
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) noexcept override {
    return state_->arena.held_unit(unit);
  }
  [[nodiscard]] std::span<float> gradients() noexcept override { return state_->arena.gradients(); }
  [[nodiscard]] std::shared_ptr<const void> arenas() const noexcept override { return state_; }
  [[nodiscard]] std::span<float> running_statistics() noexcept override {
    return state_->running_statistics.span();
  }
  void read(std::span<const float> arena, std::span<float> host) override {
    state_->device->copy_to_host(host.data(), arena.data(), arena.size_bytes());
    state_->device->synchronize();
  }
  void write(std::span<const float> host, std::span<float> arena) override {
    state_->device->copy_to_device(arena.data(), host.data(), host.size_bytes());
    state_->device->synchronize();
  }
  void queue_write(std::span<const float> host, std::span<float> arena) override {
    state_->device->copy_to_device(arena.data(), host.data(), host.size_bytes());
  }
  void queue_read(std::span<const float> arena, std::span<float> host) override {
    state_->device->copy_to_host(host.data(), arena.data(), arena.size_bytes());
    state_->device->mark(*read_, Device::Queue::work);
  }
  [[nodiscard]] bool has_read() override { return state_->device->has_reached(*read_); }
  [[nodiscard]] bool queues() const noexcept override { return true; }
  void to_plain(std::span<const float> view, ParameterId id,
                std::span<float> plain) const override {
    state_->arena.to_plain(view, id, plain);
  }
  void from_plain(std::span<const float> plain, ParameterId id,
                  std::span<float> view) const override {
    state_->arena.from_plain(plain, id, view);
  }
  void add(std::span<const float> from, std::span<float> to) override {
    cuda::add(state_->device->stream(), DataType::f32, to.data(), from.data(), to.data(),
              to.size());
  }
  [[nodiscard]] std::shared_ptr<ArenaMemory> allocate(std::size_t count) override {
    return std::make_shared<DeviceArena>(state_->device, count);
  }
  void set_exchange(UnitExchange& exchange) override { state_->exchange = &exchange; }
  void set_step_timer(StepTimer& timer) override {
    if (!state_->timeline) state_->timeline = std::make_shared<DeviceTimeline>();
    state_->timeline->set_timer(timer);
  }
  void report_steps() override {
    if (state_->timeline) state_->timeline->report(*state_->device);
  }
  void cast(std::span<const float> values, Precision type, std::uint16_t* to) override {
    convert(state_->device->stream(), values.data(), DataType::f32, to, storage_of(type),
            values.size());
  }
  [[nodiscard]] std::shared_ptr<CastBuffer> make_cast_buffer(Precision type,
                                                             std::size_t count) override {
    return std::make_shared<DeviceCastBuffer>(state_->device, storage_of(type), count);
  }
  [[nodiscard]] std::unique_ptr<Program> compile_training(std::int64_t batch_size) override {
    return std::make_unique<DeviceProgram>(
        state_, ProgramOptions{.batch_size = batch_size, .training = true});
  }
  [[nodiscard]] std::unique_ptr<Program> compile_inference(std::int64_t batch_size) override {
    return std::make_unique<DeviceProgram>(
        state_, ProgramOptions{.batch_size = batch_size, .training = false});
  }

 private:
  std::shared_ptr<EngineState> state_;
  PinnedMemory pinned_;
  std::unique_ptr<Event> read_;
  Precision precision_;
};

}  // namespace

std::unique_ptr<Engine> make_device_engine(std::shared_ptr<Device> device, const Graph& graph,
                                           const DeviceEngineOptions& options) {
  return std::make_unique<DeviceEngine>(std::move(device), graph, options);
}

}  // namespace lockstep::cuda
