#pragma once

#include "../unit_schedule.hpp"
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

/// Where a parameter or its gradient is: in an arena, or within a planned buffer while its unit is
/// there.
struct Place {
  std::byte* fixed = nullptr;
  Tensor tensor;
  std::size_t offset = 0;  ///< bytes into the buffer
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
  [[nodiscard]] void* at(const Place& place) const {
    if (place.fixed != nullptr) return place.fixed;
    return static_cast<std::byte*>(at(place.tensor)) + place.offset;
  }
  template <typename T, typename Where>
  [[nodiscard]] T* as(const Where& where) const {
    return static_cast<T*>(at(where));
  }
};

/// Queues work of one op, and how far the gradient arena is final after it.
struct Step {
  std::string name;
  std::function<void(const Frame&)> run;
  std::size_t filled = 0;
  bool meets = false;  ///< ranks meet in it, so it is never part of a recording
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
  [[nodiscard]] Tensor gradient(ValueId id);
  /// Whether nothing else reads the gradient's tensor, so that it may be overwritten.
  [[nodiscard]] bool gradient_is_exclusive(ValueId id) const;
  /// The gradient as it came, for a step that adds the two itself.
  struct Addends {
    Tensor first;
    std::optional<Tensor> second;
    Tensor sum;  ///< where it goes: the first where there is no second, else it may be overwritten
  };
  [[nodiscard]] Addends take_gradient(ValueId id);
  /// Adds to the gradient of a value. `shared`: others read the tensor too, so it is not added to.
  enum class Ownership { exclusive, shared };
  void contribute(ValueId id, Tensor tensor, Ownership ownership);

  // Parameters and their gradients. A step that uses one touches its tensor.
  [[nodiscard]] Place parameter(ParameterId id);
  /// The parameter in the values' type.
  [[nodiscard]] Place working(ParameterId id);
  [[nodiscard]] Place gradient_of(ParameterId id);

  /// A step that touches these tensors; `final` are parameters whose gradients are done with it.
  void emit(std::string name, const std::vector<Tensor>& touched,
            std::function<void(const Frame&)> run, const std::vector<ParameterId>& final = {});

  /// After the first step, which is queued by itself.
  void begin_forward() { units_.prefetch = here(); }
  void begin_backward();
  void end_backward();
  struct Lists {
    std::vector<Step> forward;
    std::vector<Step> backward;
    MemoryPlan plan;
  };
  [[nodiscard]] Lists take();

 private:
  /// Where the sum of a value's two addends goes.
  [[nodiscard]] Tensor sum_of(ValueId id);
  /// Adds what take_gradient() has not been asked for.
  void add_up(ValueId id);
  void touch(Tensor tensor);
  void list(Step step);

  // Units, which may not be held here: gathered before their first use in a pass, the next one's
  // while this one computes, and reduced as soon as their gradients are there.
  struct Mark {
    std::size_t index = 0;
    int position = 0;
    std::size_t filled = 0;
  };
  struct Units {
    explicit Units(const std::vector<ArenaUnit>& units)
        : schedule(units), gathered(units.size()), working(units.size()), gradients(units.size()) {}
    UnitSchedule schedule;
    std::vector<std::optional<Tensor>> gathered;  ///< by unit, as it comes in
    std::vector<std::optional<Tensor>> working;   ///< by unit, in the values' type
    Mark prefetch;                                ///< where the next unit's gather begins
    std::vector<std::optional<Tensor>> gradients;
  };
  [[nodiscard]] std::vector<Step>& steps() noexcept {
    return in_backward_ ? lists_.backward : lists_.forward;
  }
  [[nodiscard]] Mark here() noexcept;
  void enter(std::size_t unit);
  [[nodiscard]] Tensor unit_gradients(std::size_t unit);
  void reduce_filled_units();
  void start_reduction(std::size_t unit);
  void await_reduction(std::size_t unit);

  EngineState& state_;
  StatisticsBlock& statistics_;
  Options options_;
  Lists lists_;
  std::vector<BufferRequest> requests_;
  std::vector<std::optional<Tensor>> values_;
  struct Contribution {
    Tensor tensor;
    Ownership ownership;
  };
  /// The last one waits for its value's own step, which may add it itself.
  struct GradientOf {
    std::optional<Contribution> sum;
    std::optional<Contribution> last;
  };
  std::vector<GradientOf> gradients_;
  int position_ = 0;
  bool in_backward_ = false;
  std::size_t filled_ = 0;
  Units units_;
};

}  // namespace lockstep::cuda
