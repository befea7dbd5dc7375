#pragma once

#include "../lowering/program.hpp"
#include "../lowering/unit_schedule.hpp"
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

/// Address of a parameter or its gradient: in an arena, or in a planned buffer while its unit is
/// gathered or reduced.
struct Place {
  std::byte* fixed = nullptr;
  Tensor tensor;
  std::size_t offset = 0;  ///< in the buffer, in bytes
};

/// Addresses of a program's buffers, and a call's arguments for its steps.
struct Frame {
  Device& device;
  std::byte* base;
  const std::vector<std::size_t>& offsets;
  const std::int32_t* labels;  ///< on the device
  const StoredImages* stored;  ///< on the device; null: the input is values already
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

/// Queues the work of one op. `filled`: end of the gradient arena's final prefix after it.
struct Step {
  std::string name;
  std::function<void(const Frame&)> run;
  std::size_t filled = 0;
  bool meets = false;  ///< contains a collective over ranks, so it is never recorded
};

/// Size of a batch of one value as stored: (batch, height, width, padded).
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

/// Lowers a graph, op by op, to lists of steps. Tracks each value's and gradient's tensor, and
/// records for each planned buffer the steps that touch it.
class ProgramBuilder final {
 public:
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const ProgramOptions& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] bool training() const noexcept { return options_.training; }
  [[nodiscard]] std::int64_t batch_size() const noexcept { return options_.batch_size; }
  [[nodiscard]] DataType type() const noexcept { return state_.type; }
  [[nodiscard]] Extent extent(ValueId id) const;

  // Tensors.
  [[nodiscard]] Tensor make(std::size_t bytes);
  /// A tensor with the extent and type of a value.
  [[nodiscard]] Tensor make_like(ValueId id);

  // Values and their gradients.
  [[nodiscard]] Tensor value(ValueId id) const;
  void set_value(ValueId id, Tensor tensor);
  /// Whether the value's only consumer may compute in place.
  [[nodiscard]] bool overwritable(ValueId id) const;
  [[nodiscard]] bool needs_gradient(ValueId id) const;
  [[nodiscard]] Tensor gradient(ValueId id);
  /// Whether the gradient's tensor has no other reader, so that it may be overwritten.
  [[nodiscard]] bool gradient_is_exclusive(ValueId id) const;
  /// A gradient as one or two addends, for a step that adds them itself.
  struct Addends {
    Tensor first;
    std::optional<Tensor> second;
    Tensor sum;  ///< `first` if there is no second; else the destination, which may be overwritten
  };
  [[nodiscard]] Addends take_gradient(ValueId id);
  /// Adds to the gradient of a value. `shared`: the tensor has other readers, so keep it as it is.
  enum class Ownership { exclusive, shared };
  void contribute(ValueId id, Tensor tensor, Ownership ownership);

  // Parameters and their gradients. A step that uses one must touch its tensor.
  [[nodiscard]] Place parameter(ParameterId id);
  /// The parameter in the type of the values.
  [[nodiscard]] Place working(ParameterId id);
  [[nodiscard]] Place gradient_of(ParameterId id);

  /// Emits a step that touches these tensors. `final`: parameters whose gradients it completes.
  void emit(std::string name, const std::vector<Tensor>& touched,
            std::function<void(const Frame&)> run, const std::vector<ParameterId>& final = {});

  /// Called after the first step, which is queued separately.
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
  /// Destination of the sum of a value's two addends.
  [[nodiscard]] Tensor sum_of(ValueId id);
  /// Adds the two addends if take_gradient() was not called.
  void add_up(ValueId id);
  void touch(Tensor tensor);
  void list(Step step);

  // Units, if they are sharded: gathered before their first use in a pass, the next unit's while
  // this one computes, and reduced as soon as their gradients are final.
  struct Mark {
    std::size_t index = 0;
    int position = 0;
    std::size_t filled = 0;
  };
  struct Units {
    explicit Units(const std::vector<ArenaUnit>& units)
        : schedule(units), gathered(units.size()), working(units.size()), gradients(units.size()) {}
    UnitSchedule schedule;
    std::vector<std::optional<Tensor>> gathered;  ///< by unit, as gathered
    std::vector<std::optional<Tensor>> working;   ///< by unit, in the type of the values
    Mark prefetch;                                ///< where the next unit's gather starts
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
  ProgramOptions options_;
  Lists lists_;
  std::vector<BufferRequest> requests_;
  std::vector<std::optional<Tensor>> values_;
  struct Contribution {
    Tensor tensor;
    Ownership ownership;
  };
  /// `last` is kept separate for the value's own step, which may add it itself.
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
