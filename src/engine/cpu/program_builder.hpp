#pragma once

#include "../unit_schedule.hpp"
#include "activation_pool.hpp"
#include "engine_state.hpp"
#include "lockstep/engine/memory_plan.hpp"
#include "statistics.hpp"
#include "step.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cpu {

/// A value, gradient or scratch area of a program: a memory object, and the planned buffer it lies
/// in, or none if its address is fixed (parameters, for one).
struct Tensor {
  static constexpr int fixed = -1;
  dnnl::memory memory;
  int buffer = fixed;
  std::size_t offset = 0;  ///< bytes into the buffer
  [[nodiscard]] Desc desc() const { return memory.get_desc(); }
};

/// A step of a list, and how far the gradient arena is final when it has run.
struct ListedStep {
  Step* step;
  std::size_t filled;
};

/// The lists of a compiled program, and what they own.
struct StepLists {
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<ListedStep> forward;
  std::vector<ListedStep> backward_overwrite;
  std::vector<ListedStep> backward_accumulate;
};

/// Lowers a graph, op by op, to step lists: keeps each value's and gradient's tensor, puts reorders
/// where formats differ, and notes for each planned buffer the steps that touch it.
class ProgramBuilder final {
 public:
  struct Options {
    std::int64_t batch_size = 0;
    bool training = false;
  };
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const Options& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] const dnnl::engine& engine() const noexcept { return state_.engine; }
  [[nodiscard]] bool training() const noexcept { return options_.training; }
  [[nodiscard]] std::int64_t batch_size() const noexcept { return options_.batch_size; }
  [[nodiscard]] dnnl::prop_kind forward_kind() const noexcept;
  /// Of convolutions: as in training wherever some are computed by Winograd's algorithm, since
  /// inference would have the others in another layout and reorder between the two.
  [[nodiscard]] dnnl::prop_kind convolution_kind() const;
  [[nodiscard]] Shape batch_shape(ValueId value) const;
  /// What values, their gradients and the working copies of weights are computed in.
  [[nodiscard]] DataType activations() const noexcept { return state_.activations; }
  /// With the scratchpad in the program's own plan.
  [[nodiscard]] static dnnl::primitive_attr attributes();

  // Tensors.
  [[nodiscard]] Tensor make(const Desc& desc);
  [[nodiscard]] Tensor fixed(const Desc& desc, void* data) const;
  /// The same bytes under another descriptor.
  [[nodiscard]] Tensor view(const Tensor& tensor, const Desc& desc);
  /// The tensor in this format: itself, or a copy by a reorder step.
  [[nodiscard]] Tensor in_format(const Tensor& tensor, const Desc& desc, const std::string& name);
  /// An op's input for its backward in this format: forward's reordered copy where that fits, else
  /// the value.
  [[nodiscard]] Tensor input_again(ValueId input, const Tensor& forwards, const Desc& desc,
                                   const std::string& name);
  [[nodiscard]] Tensor parameter(ParameterId id, const Desc& desc, const std::string& name);
  /// Of an op that makes `value`, which backward may compute again with it: a copy where parameters
  /// are brought in for a while.
  [[nodiscard]] Tensor parameter_of(ValueId value, ParameterId id, const Desc& desc,
                                    const std::string& name);

  /// A batch norm's mean or variance, of the program's own block.
  [[nodiscard]] Tensor statistic(StatisticId id, const Desc& channels) const;

  // Values and their gradients.
  /// Whether backward computes it again.
  [[nodiscard]] bool recomputes(ValueId id) const;
  /// In backward, where it was not kept: computed again.
  [[nodiscard]] const Tensor& value(ValueId id);
  [[nodiscard]] Desc format(ValueId id) const;
  void set_value(ValueId id, Tensor tensor);
  /// With the steps that give it once more, from other values, where backward asks for it.
  using Recompute = std::function<Tensor(ProgramBuilder&)>;
  void set_value(ValueId id, Tensor tensor, Recompute again);
  /// Whether the one consumer of a value may compute in its place.
  [[nodiscard]] bool overwritable(ValueId id) const;
  /// Whether its one consumer's backward may compute in its place.
  [[nodiscard]] bool overwritable_in_backward(ValueId id) const;
  [[nodiscard]] bool needs_gradient(ValueId id) const;
  [[nodiscard]] const Tensor& gradient(ValueId id);
  /// Whether nothing else reads the gradient's tensor, so that it may be overwritten.
  [[nodiscard]] bool gradient_is_exclusive(ValueId id);
  /// A gradient whose last addition is still to be made, for a step that does more in the same pass
  /// over the values.
  struct OpenSum {
    Tensor left;
    Tensor right;
    Tensor target;  ///< one of them where it may be overwritten
  };
  /// Empty where there is none, or not in this format; gradient() has it then. What is taken must
  /// be added up.
  [[nodiscard]] std::optional<OpenSum> take_open_sum(ValueId id, const Desc& desc);
  /// Adds to the gradient of a value. `shared`: others read the tensor too, so it is not added to.
  enum class Ownership { exclusive, shared };
  void contribute(ValueId id, const Tensor& tensor, Ownership ownership, const std::string& name);

  // Steps.
  using Arguments = std::vector<std::pair<int, Tensor>>;
  void emit(const std::string& name, const dnnl::primitive& primitive, const Desc& scratchpad,
            const Arguments& arguments);
  /// Copies between tensors, of whichever formats.
  void emit_copy(const std::string& name, const Tensor& from, const Tensor& to);
  /// A step of our own that touches these tensors.
  void emit(std::unique_ptr<Step> step, const std::vector<Tensor>& touched);
  /// A primitive that also computes gradients of parameters, into the arena or added to it.
  struct ParameterOutput {
    int argument;
    ParameterId parameter;
    Desc desc;
    Desc primitives = {};  ///< the same bytes as the primitive has them, where it differs
  };
  void emit_parameter_gradients(const std::string& name, const dnnl::primitive& primitive,
                                const Desc& scratchpad, const Arguments& arguments,
                                const std::vector<ParameterOutput>& outputs);

  /// A step of our own that leaves this rank's gradients of parameters aside, plain and in fp32.
  struct AsideOutput {
    ParameterId parameter;
    const float* values;
  };
  void emit_parameter_gradients(std::unique_ptr<Step> step, const std::vector<Tensor>& touched,
                                const std::vector<AsideOutput>& outputs);

  void begin_backward();
  void end_backward();
  [[nodiscard]] StepLists take_lists() { return std::move(lists_); }
  [[nodiscard]] PlacedBuffers take_buffers();

 private:
  enum class Lists { forward, both, overwrite, accumulate };
  void list(std::unique_ptr<Step> step, Lists lists);
  /// A place in the lists, behind what is there now.
  struct Mark {
    std::size_t forward = 0;
    std::size_t overwrite = 0;
    std::size_t accumulate = 0;
    int position = 0;
    std::size_t filled = 0;
  };
  [[nodiscard]] OpenSum close(ValueId id);
  void settle(ValueId id);
  [[nodiscard]] Mark here() const noexcept;
  void insert(std::unique_ptr<Step> step, const Mark& mark);
  void place(const Tensor& tensor);
  void touch(const Tensor& tensor);
  [[nodiscard]] std::unique_ptr<Step> bound(const std::string& name,
                                            const dnnl::primitive& primitive,
                                            const Desc& scratchpad, const Arguments& arguments);
  void emit_reorder(const std::string& name, const Tensor& from, const Tensor& to, Lists lists);
  /// A parameter in its own format, in the type it comes in.
  [[nodiscard]] Tensor master(ParameterId id);
  [[nodiscard]] Tensor arena_gradient(ParameterId id);
  void add_to_arena(const std::string& name, const Tensor& from, ParameterId id);
  /// The gradients of the steps listed last are final up to this parameter's end.
  void mark_filled(ParameterId id);

  // Units.
  /// A planned tensor's bytes from `offset` on, under a descriptor.
  [[nodiscard]] Tensor part(const Tensor& whole, const Desc& desc, std::size_t offset);
  /// This pass uses a unit's parameters from here on.
  void enter(std::size_t unit);
  [[nodiscard]] Tensor unit_gradients(std::size_t unit);
  void reduce_filled_units();
  void start_reduction(std::size_t unit);
  void await_reduction(std::size_t unit);
  struct Units {
    explicit Units(const std::vector<ArenaUnit>& units)
        : schedule(units), gathered(units.size()), gradients(units.size()) {}
    UnitSchedule schedule;
    std::vector<std::optional<Tensor>> gathered;  ///< by unit: where its parameters are now
    Mark prefetch;                                ///< where the next unit's gather begins
    std::vector<std::optional<Tensor>> gradients;
  };

  EngineState& state_;
  StatisticsBlock& statistics_;
  Options options_;
  StepLists lists_;
  PlacedBuffers placed_;
  std::vector<BufferRequest> requests_;
  std::vector<std::optional<Tensor>> values_;
  std::vector<Recompute> recomputes_;  ///< by value: of those that backward has not asked for
  std::vector<std::optional<Tensor>> gradients_;
  std::vector<std::optional<Ownership>> ownership_;
  /// A contribution that is still to be added to the gradient.
  struct Addend {
    Tensor tensor;
    Ownership ownership;
    std::string name;
  };
  std::vector<std::optional<Addend>> addends_;
  int position_ = 0;
  bool in_backward_ = false;
  std::size_t filled_ = 0;
  Units units_;
};

}  // namespace lockstep::cpu
