#pragma once

#include "engine_state.hpp"
#include "lockstep/engine/memory_plan.hpp"
#include "statistics_block.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

/// A value, gradient or scratch area of a program, in one of its planned buffers.
struct Tensor {
  int buffer = -1;
};

/// Where a program's buffers are, and what a call hands to its steps.
struct Frame {
  Device& device;
  std::byte* base;
  const std::vector<std::size_t>& offsets;
  const std::int32_t* labels;  ///< on the device
  const StoredImages* stored;  ///< on the device; null: the images are values already
  std::int64_t samples;
  float loss_scale;
  bool accumulate;

  [[nodiscard]] Stream stream() const noexcept { return device.stream(); }
  [[nodiscard]] void* at(const Tensor& tensor) const {
    return base + offsets[static_cast<std::size_t>(tensor.buffer)];
  }
  template <typename T>
  [[nodiscard]] T* as(const Tensor& tensor) const {
    return static_cast<T*>(at(tensor));
  }
};

/// Queues work of one op, and how far the gradient arena is final after it.
struct Step {
  std::string name;
  std::function<void(const Frame&)> run;
  std::size_t filled = 0;
};

/// A batch of one value as it is stored: (batch, height, width, padded).
struct Extent {
  std::int64_t batch = 0;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 0;
  std::int64_t padded = 0;
  [[nodiscard]] std::int64_t rows() const noexcept { return batch * height * width; }
  [[nodiscard]] std::size_t values() const noexcept {
    return static_cast<std::size_t>(rows() * padded);
  }
  [[nodiscard]] Matrix matrix() const noexcept {
    return {.rows = rows(), .channels = channels, .padded = padded};
  }
  [[nodiscard]] ImageExtent image() const noexcept {
    return {
        .batch = batch, .height = height, .width = width, .channels = channels, .padded = padded};
  }
};

/// Lowers a graph, op by op, to lists of steps: keeps each value's and gradient's tensor and notes
/// for each planned buffer the steps that touch it.
class ProgramBuilder final {
 public:
  struct Options {
    std::int64_t batch_size = 0;
    bool training = false;
  };
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const Options& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] bool training() const noexcept { return options_.training; }
  [[nodiscard]] std::int64_t batch_size() const noexcept { return options_.batch_size; }
  [[nodiscard]] DataType type() const noexcept { return state_.type; }
  [[nodiscard]] Extent extent(ValueId id) const;

  // Tensors.
  [[nodiscard]] Tensor make(std::size_t bytes);
  /// Of the extent and type of a value.
  [[nodiscard]] Tensor make_like(ValueId id);

  // Values and their gradients.
  [[nodiscard]] Tensor value(ValueId id) const;
  void set_value(ValueId id, Tensor tensor);
  /// Whether the one consumer of a value may compute in its place.
  [[nodiscard]] bool overwritable(ValueId id) const;
  [[nodiscard]] bool needs_gradient(ValueId id) const;
  [[nodiscard]] Tensor gradient(ValueId id) const;
  /// Whether nothing else reads the gradient's tensor, so that it may be overwritten.
  [[nodiscard]] bool gradient_is_exclusive(ValueId id) const;
  /// Adds to the gradient of a value. `shared`: others read the tensor too, so it is not added to.
  enum class Ownership { exclusive, shared };
  void contribute(ValueId id, Tensor tensor, Ownership ownership);

  /// A step that touches these tensors; `final` are parameters whose gradients are done with it.
  void emit(std::string name, const std::vector<Tensor>& touched,
            std::function<void(const Frame&)> run, const std::vector<ParameterId>& final = {});

  void begin_backward() noexcept { in_backward_ = true; }
  struct Lists {
    std::vector<Step> forward;
    std::vector<Step> backward;
    MemoryPlan plan;
  };
  [[nodiscard]] Lists take();

 private:
  EngineState& state_;
  StatisticsBlock& statistics_;
  Options options_;
  Lists lists_;
  std::vector<BufferRequest> requests_;
  std::vector<std::optional<Tensor>> values_;
  std::vector<std::optional<Tensor>> gradients_;
  std::vector<std::optional<Ownership>> ownership_;
  int position_ = 0;
  bool in_backward_ = false;
  std::size_t filled_ = 0;
};

}  // namespace lockstep::cuda
