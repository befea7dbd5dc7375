#pragma once

#include "../lowering/program.hpp"
#include "../lowering/unit_schedule.hpp"
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

/// A value, gradient or scratch area of a program: a memory object and its planned buffer, or
/// `fixed` if its address never changes (a parameter's, for example).
struct Tensor {
  static constexpr int fixed = -1;
  dnnl::memory memory;
  int buffer = fixed;
  std::size_t offset = 0;  ///< in the buffer, in bytes
  [[nodiscard]] Desc desc() const { return memory.get_desc(); }
};

/// A step of a list, and the end of the gradient arena's final prefix after the step.
struct ListedStep {
  Step* step;
  std::size_t filled;
};

/// The step lists of a compiled program, and their owned steps.
struct StepLists {
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<ListedStep> forward;
  std::vector<ListedStep> backward_overwrite;
  std::vector<ListedStep> backward_accumulate;
};

/// Lowers a graph, op by op, to step lists. Tracks each value's and gradient's tensor, inserts
/// reorders between formats, and records for each planned buffer the steps that touch it.
class ProgramBuilder final {
 public:
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const ProgramOptions& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] const dnnl::engine& engine() const noexcept { return state_.engine; }
  [[nodiscard]] bool training() const noexcept { return options_.training; }
  [[nodiscard]] std::int64_t batch_size() const noexcept { return options_.batch_size; }
  [[nodiscard]] dnnl::prop_kind forward_kind() const noexcept;
  /// For convolutions: forward_training if Winograd's algorithm computes any of them. Inference
  /// would give the others another layout and reorder between the two.
  [[nodiscard]] dnnl::prop_kind convolution_kind() const;
  [[nodiscard]] Shape batch_shape(ValueId value) const;
  /// Type of values, their gradients and the working copies of weights.
  [[nodiscard]] DataType activations() const noexcept { return state_.activations; }
  /// Attributes with the scratchpad in the program's own memory plan.
  [[nodiscard]] static dnnl::primitive_attr attributes();

  // Tensors.
  [[nodiscard]] Tensor make(const Desc& desc);
  [[nodiscard]] Tensor fixed(const Desc& desc, void* data) const;
  /// The same bytes under another descriptor.
  [[nodiscard]] Tensor view(const Tensor& tensor, const Desc& desc);
  /// The tensor in this format: itself, or a copy by a reorder step.
  [[nodiscard]] Tensor in_format(const Tensor& tensor, const Desc& desc, const std::string& name);
  /// An op's input in this format, for its backward: forward's reordered copy if that fits, else
  /// the value.
  [[nodiscard]] Tensor input_again(ValueId input, const Tensor& forwards, const Desc& desc,
                                   const std::string& name);
  [[nodiscard]] Tensor parameter(ParameterId id, const Desc& desc, const std::string& name);
  /// A parameter of the op that computes `value`. If backward may recompute `value` and parameters
  /// are gathered, this is a copy.
  [[nodiscard]] Tensor parameter_of(ValueId value, ParameterId id, const Desc& desc,
                                    const std::string& name);

  /// A batch norm's mean or variance, in the program's statistics block.
  [[nodiscard]] Tensor statistic(StatisticId id, const Desc& channels) const;

  // Values and their gradients.
  /// Whether backward recomputes the value.
  [[nodiscard]] bool recomputes(ValueId id) const;
  /// The value's tensor; backward recomputes it if it was not kept.
  [[nodiscard]] const Tensor& value(ValueId id);
  [[nodiscard]] Desc format(ValueId id) const;
  void set_value(ValueId id, Tensor tensor);
  /// `again` emits the steps that recompute the value from other values when backward needs it.
  using Recompute = std::function<Tensor(ProgramBuilder&)>;
  void set_value(ValueId id, Tensor tensor, Recompute again);
  /// Whether the value's only consumer may compute in place.
  [[nodiscard]] bool overwritable(ValueId id) const;
  /// Whether the backward of the value's only consumer may compute in place.
  [[nodiscard]] bool overwritable_in_backward(ValueId id) const;
  [[nodiscard]] bool needs_gradient(ValueId id) const;
  [[nodiscard]] const Tensor& gradient(ValueId id);
  /// Whether the gradient's tensor has no other reader, so that it may be overwritten.
  [[nodiscard]] bool gradient_is_exclusive(ValueId id);
  /// A gradient whose last addition is still pending, for a step that adds in the same pass over
  /// the values.
  struct OpenSum {
    Tensor left;
    Tensor right;
    Tensor target;  ///< `left` or `right` if that one may be overwritten
  };
  /// Empty if no addition is pending or the formats differ; then use gradient(). The caller must
  /// compute the sum that it takes.
  [[nodiscard]] std::optional<OpenSum> take_open_sum(ValueId id, const Desc& desc);
  /// Adds to the gradient of a value. `shared`: the tensor has other readers, so keep it as it is.
  enum class Ownership { exclusive, shared };
  void contribute(ValueId id, const Tensor& tensor, Ownership ownership, const std::string& name);

  // Steps.
  using Arguments = std::vector<std::pair<int, Tensor>>;
  void emit(const std::string& name, const dnnl::primitive& primitive, const Desc& scratchpad,
            const Arguments& arguments);
  /// Copies between tensors of any formats.
  void emit_copy(const std::string& name, const Tensor& from, const Tensor& to);
  /// Emits a custom step that touches these tensors.
  void emit(std::unique_ptr<Step> step, const std::vector<Tensor>& touched);
  /// Emits a call with the address of a tensor's values; null if the tensor is empty.
  void emit(const std::string& name, const Tensor& tensor, CallStep::Call call);
  /// An output of a primitive that is a parameter's gradient, written or added to the arena.
  struct ParameterOutput {
    int argument;
    ParameterId parameter;
    Desc desc;
    Desc primitives = {};  ///< the primitive's descriptor of the same bytes, if it differs
  };
  void emit_parameter_gradients(const std::string& name, const dnnl::primitive& primitive,
                                const Desc& scratchpad, const Arguments& arguments,
                                const std::vector<ParameterOutput>& outputs);

  /// A custom step's gradient of a parameter: this rank's, in a separate buffer, plain, fp32.
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
  /// A position in the lists: their current end.
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
  /// A parameter in its arena format, in the type in which it is gathered.
  [[nodiscard]] Tensor master(ParameterId id);
  [[nodiscard]] Tensor arena_gradient(ParameterId id);
  void add_to_arena(const std::string& name, const Tensor& from, ParameterId id);
  /// Marks gradients as final up to this parameter's end, after the steps listed last.
  void mark_filled(ParameterId id);

  // Units.
  /// A planned tensor's bytes, starting at `offset`, under a descriptor.
  [[nodiscard]] Tensor part(const Tensor& whole, const Desc& desc, std::size_t offset);
  /// This pass uses a unit's parameters from here on; the first call gathers them.
  void enter(std::size_t unit);
  [[nodiscard]] DataType gathered_type(std::size_t unit) const;
  [[nodiscard]] Tensor unit_gradients(std::size_t unit);
  void reduce_filled_units();
  void start_reduction(std::size_t unit);
  void await_reduction(std::size_t unit);
  struct Units {
    explicit Units(const std::vector<ArenaUnit>& units)
        : schedule(units), gathered(units.size()), gradients(units.size()) {}
    UnitSchedule schedule;
    std::vector<std::optional<Tensor>> gathered;  ///< by unit: its gathered parameters
    Mark prefetch;                                ///< where the next unit's gather starts
    std::vector<std::optional<Tensor>> gradients;
  };

  EngineState& state_;
  StatisticsBlock& statistics_;
  ProgramOptions options_;
  StepLists lists_;
  PlacedBuffers placed_;
  std::vector<BufferRequest> requests_;
  std::vector<std::optional<Tensor>> values_;
  std::vector<Recompute> recomputes_;  ///< by value, until backward asks for it
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
