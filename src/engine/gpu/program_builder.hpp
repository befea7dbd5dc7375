#pragma once

#include "../lowering/graph_builder.hpp"
#include "engine_state.hpp"
#include "lockstep/engine/memory_plan.hpp"
#include "statistics_block.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::gpu {

/// A value, gradient or scratch area of a program, in one of its planned buffers.
struct Tensor {
  int buffer = -1;
};

/// Address of a parameter or its gradient: in an arena, or in a planned buffer while its unit is
/// gathered or reduced.
struct Address {
  std::byte* fixed = nullptr;
  Tensor tensor;
  std::size_t offset = 0;  ///< in the buffer, in bytes
};

/// Arguments of one call of a program for its steps, and the addresses of its buffers.
struct LaunchContext {
  DeviceQueues& device;
  std::byte* base;
  const std::vector<std::size_t>& offsets;
  Targets targets;             ///< on the device
  DroppedBlocks dropped;       ///< on the device
  const StoredImages* stored;  ///< on the device; null: the batch is fp32 values
  std::int64_t samples;
  bool accumulate;
  bool reduces;  ///< as Program::BackwardOptions

  [[nodiscard]] Stream stream() const noexcept { return device.stream(); }
  [[nodiscard]] void* at(const Tensor& tensor) const {
    return base + offsets[static_cast<std::size_t>(tensor.buffer)];
  }
  [[nodiscard]] void* at(const Address& place) const {
    if (place.fixed != nullptr) return place.fixed;
    return static_cast<std::byte*>(at(place.tensor)) + place.offset;
  }
  template <typename T, typename Where>
  [[nodiscard]] T* as(const Where& where) const {
    return static_cast<T*>(at(where));
  }
  /// Null for nullopt.
  template <typename T, typename Where>
  [[nodiscard]] T* as(const std::optional<Where>& where) const {
    return where ? as<T>(*where) : nullptr;
  }
};

/// Queues the work of one op.
struct Step {
  std::string name;
  std::function<void(const LaunchContext&)> run;
  std::size_t bytes = 0;            ///< of the buffers that it reads and writes
  bool collective = false;          ///< contains a collective over ranks, so it is never recorded
  bool in_last_micro_step = false;  ///< runs only if LaunchContext::reduces
  [[nodiscard]] bool runs(bool reduces) const noexcept { return reduces || !in_last_micro_step; }
  /// Reductions of the last micro-step only start; computation goes on meanwhile.
  [[nodiscard]] bool waits_for_ranks() const noexcept { return collective && !in_last_micro_step; }
};

/// Size of a batch of one value as stored: (batch, height, width, padded).
struct Extent {
  std::int64_t batch = 0;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 0;
  std::int64_t padded = 0;
  GpuClass gpu = GpuClass::sm_90;
  [[nodiscard]] std::int64_t rows() const noexcept { return batch * height * width; }
  [[nodiscard]] std::size_t values() const noexcept {
    return static_cast<std::size_t>(rows() * padded);
  }
  [[nodiscard]] Matrix matrix() const noexcept {
    return {.rows = rows(), .channels = channels, .padded = padded, .gpu = gpu};
  }
  [[nodiscard]] ImageExtent image() const noexcept {
    return {
        .batch = batch, .height = height, .width = width, .channels = channels, .padded = padded};
  }
};

/// Lowers a step, op by op, to steps that queue a device's work. Tracks each value's tensor.
class ProgramBuilder final : public GraphBuilder<Tensor, Step> {
 public:
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const StepGraph& steps,
                 const ProgramOptions& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] DataType type() const noexcept { return state_.type; }
  [[nodiscard]] Extent extent(ValueId id) const;
  [[nodiscard]] ValueId input() const noexcept { return graph().input(); }
  [[nodiscard]] bool needs_gradient(ValueId id) const { return needs_gradient_[at(id)]; }

  // Tensors.
  [[nodiscard]] Tensor make(std::size_t bytes) { return {.buffer = lists().make_buffer(bytes)}; }
  /// A tensor with the extent and type of a value.
  [[nodiscard]] Tensor make_like(ValueId id);

  /// The sum of two gradients.
  [[nodiscard]] Tensor sum(StepValueId left, StepValueId right);

  // Parameters and their gradients. A step that uses one must touch its tensor.
  [[nodiscard]] Address parameter(ParameterId id);
  /// The parameter in the type of the values.
  [[nodiscard]] Address working(ParameterId id);
  [[nodiscard]] Address gradient_of(ParameterId id);
  /// The same, added to `touched`; nullopt if the parameter is frozen.
  [[nodiscard]] std::optional<Address> trained_gradient_of(ParameterId id,
                                                           std::vector<Tensor>& touched);

  /// Emits a step that touches these tensors; for Step::bytes, one that it reads and writes is
  /// listed twice, and addresses in arenas count as 0.
  void emit(std::string name, const std::vector<Tensor>& touched,
            std::function<void(const LaunchContext&)> run);

  /// Emits a step with a collective on a tensor of `count` values.
  template <typename T>
  void emit_sum_over_ranks(std::string name, const Tensor& tensor, std::size_t count) {
    touch(tensor);
    const auto sum = [&norms = *state_.norms, count](std::byte* values) {
      norms.sum(std::span(reinterpret_cast<T*>(values), count));
    };
    lists().add(exchange_step(std::move(name), tensor, sum, false));
  }

  /// Leaves a parameter's gradient, in the 16-bit type of the values, to a step that converts those
  /// of a bucket, or of a unit, when the last of them is computed.
  void convert_gradient(ParameterId id, Tensor values) {
    unconverted_.push_back({.id = id, .values = values});
  }
  void complete(ParameterId id) override;

  struct Program {
    std::vector<Step> forward;
    std::vector<Step> backward;
    MemoryPlan plan;
  };
  [[nodiscard]] Program take();

 private:
  // GraphBuilder.
  /// Converts the parameters to the type of the values.
  void unit_arrived(std::size_t unit) override;
  [[nodiscard]] Tensor make_unit(std::size_t unit, UnitContent content) override;
  void clear_gaps(std::size_t unit, const Tensor& gradients) override;
  void convert_gradients();
  [[nodiscard]] Step exchange_step(std::string name, const Tensor& tensor,
                                   std::function<void(std::byte*)> run,
                                   bool in_last_micro_step) override;

  EngineState& state_;
  StatisticsBlock& statistics_;
  std::vector<bool> needs_gradient_;     ///< by node
  std::vector<Tensor> working_;          ///< by unit: its parameters in the type of the values
  std::vector<std::size_t> group_ends_;  ///< of gradients that become final together
  struct Unconverted {
    ParameterId id;
    Tensor values;
  };
  std::vector<Unconverted> unconverted_;  ///< gradients of the current group in 16 bits
  std::size_t written_ = 0;               ///< gradients in [0, written_) of the arena are final
};

}  // namespace lockstep::gpu
