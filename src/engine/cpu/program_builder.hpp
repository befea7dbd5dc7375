#pragma once

#include "../lowering/graph_builder.hpp"
#include "activation_pool.hpp"
#include "engine_state.hpp"
#include "lockstep/core/bfloat16.hpp"
#include "lockstep/core/dropped_blocks.hpp"
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

/// A step of a program, and when it runs: always, or only in a backward that overwrites the
/// gradient arena, or in one that adds to it, or in one that reduces it.
struct ListedStep {
  enum class When { always, overwriting, accumulating, reducing };
  std::unique_ptr<Step> step;
  When when = When::always;
  [[nodiscard]] bool runs(const Program::BackwardOptions& options) const noexcept {
    if (when == When::always) return true;
    if (when == When::reducing) return options.reduces;
    return (when == When::accumulating) == options.accumulate;
  }
};

/// The gradient that arrives at an op.
struct GradOutput {
  Tensor first;
  std::optional<Tensor> second;  ///< to be added
  std::optional<Tensor> target;  ///< one of them, if the op may overwrite it
};

/// Lowers a step, op by op, to oneDNN's primitives and steps of our own. Tracks each value's
/// tensor, and inserts reorders between formats.
class ProgramBuilder final : public GraphBuilder<Tensor, ListedStep> {
 public:
  /// `dropped`: by the batch that forward computes.
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const DroppedBlocks& dropped,
                 const StepGraph& steps, const ProgramOptions& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] const DroppedBlocks& dropped() const noexcept { return dropped_; }
  [[nodiscard]] const dnnl::engine& engine() const noexcept { return state_.engine; }
  [[nodiscard]] dnnl::prop_kind forward_kind() const noexcept;
  [[nodiscard]] Shape batch_shape(ValueId value) const;
  /// Type of values, their gradients and the working copies of weights.
  [[nodiscard]] DataType activations() const noexcept { return state_.activations; }
  /// Calls `use` with a value of this type.
  template <typename Use>
  void with_type(const Use& use) const {
    activations() == DataType::bf16 ? use(Bfloat16()) : use(0.0F);
  }
  /// Attributes with the scratchpad in the program's own memory plan.
  [[nodiscard]] static dnnl::primitive_attr attributes();

  // Tensors.
  [[nodiscard]] Tensor make(const Desc& desc);
  [[nodiscard]] Tensor fixed(const Desc& desc, void* data) const;
  /// The same bytes under another descriptor.
  [[nodiscard]] Tensor view(const Tensor& tensor, const Desc& desc);
  /// The tensor in this format: itself, or a copy by a reorder step.
  [[nodiscard]] Tensor in_format(const Tensor& tensor, const Desc& desc, const std::string& name);
  /// The tensor in the format of rows() and the type of values, which the loss's gradient has not.
  [[nodiscard]] Tensor in_rows(const Tensor& tensor, const std::string& name) {
    return in_format(tensor, rows(dims_of(tensor.desc()), activations()), name);
  }
  /// A tensor of that format for a value or its gradient.
  [[nodiscard]] Tensor make_rows(ValueId value) {
    return make(rows(dims_of(batch_shape(value)), activations()));
  }
  /// Whether a step may overwrite `tensor`, a value or a copy of it in another format.
  [[nodiscard]] bool overwritable(const Tensor& tensor, StepValueId id) {
    return tensor.buffer != value(id).buffer || GraphBuilder::overwritable(id);
  }
  using GraphBuilder::overwritable;
  [[nodiscard]] Tensor parameter(ParameterId id, const Desc& desc, const std::string& name);

  // Gradients.
  /// The gradient that arrives at an op, in this format. Two addends of other formats are added.
  [[nodiscard]] GradOutput grad_output(const StepOp& op, const Desc& desc, const std::string& name);
  /// The sum of two gradients.
  [[nodiscard]] Tensor sum(StepValueId left, StepValueId right);

  // Steps.
  using Arguments = std::vector<std::pair<int, Tensor>>;
  void emit(const std::string& name, const dnnl::primitive& primitive, const Desc& scratchpad,
            const Arguments& arguments);
  /// Copies between tensors of any formats.
  void emit_copy(const std::string& name, const Tensor& from, const Tensor& to);
  /// Emits a custom step that touches these tensors.
  void emit(std::unique_ptr<Step> step, const std::vector<Tensor>& touched);
  /// Emits a loop over the values of these tensors.
  void emit_loop(const std::string& name, const std::vector<Tensor>& tensors, LoopStep::Loop loop);
  /// An output of a step that is a parameter's gradient, written or added to the arena.
  struct ParameterOutput {
    int argument = 0;  ///< of a primitive
    ParameterId parameter;
    Desc desc;
    Desc primitives = {};  ///< the primitive's descriptor of the same bytes, if it differs
  };
  void emit_parameter_gradients(const std::string& name, const dnnl::primitive& primitive,
                                const Desc& scratchpad, const Arguments& arguments,
                                const std::vector<ParameterOutput>& outputs);
  /// Makes a step that writes the outputs, and touches its tensors.
  using MakeGradientStep = std::function<std::unique_ptr<Step>(const std::vector<Tensor>& outputs)>;
  void emit_parameter_gradients(const std::string& name,
                                const std::vector<ParameterOutput>& outputs,
                                const MakeGradientStep& make_step);
  /// A loop over the values of `operands`, then of the outputs.
  void emit_parameter_gradients(const std::string& name, const std::vector<Tensor>& operands,
                                const std::vector<ParameterOutput>& outputs,
                                const LoopStep::Loop& loop);

  /// A parameter's gradient that a custom step computes in its own buffer, plain, fp32.
  struct BufferedGradient {
    ParameterId parameter;
    const float* values;
  };
  void emit_parameter_gradients(std::unique_ptr<Step> step, const std::vector<Tensor>& touched,
                                const std::vector<BufferedGradient>& outputs);

  [[nodiscard]] std::vector<ListedStep> take_forward() { return lists().take_forward(); }
  [[nodiscard]] std::vector<ListedStep> take_backward() { return lists().take_backward(); }
  [[nodiscard]] PlacedBuffers take_buffers();

 private:
  using When = ListedStep::When;
  void list(std::unique_ptr<Step> step, When when = When::always);
  void place(const Tensor& tensor);
  [[nodiscard]] std::unique_ptr<Step> bound(const std::string& name,
                                            const dnnl::primitive& primitive,
                                            const Desc& scratchpad, const Arguments& arguments);
  [[nodiscard]] std::unique_ptr<Step> loop_over(const std::string& name,
                                                const std::vector<Tensor>& tensors,
                                                LoopStep::Loop loop);
  void emit_reorder(const std::string& name, const Tensor& from, const Tensor& to, When when);
  /// A parameter in its arena format, in the type in which it is gathered.
  [[nodiscard]] Tensor master(ParameterId id);
  [[nodiscard]] Tensor arena_gradient(ParameterId id);
  void add_to_arena(const std::string& name, const Tensor& from, ParameterId id);

  /// A planned tensor's bytes, starting at `offset`, under a descriptor.
  [[nodiscard]] Tensor part(const Tensor& whole, const Desc& desc, std::size_t offset);
  [[nodiscard]] DataType gathered_type(std::size_t unit) const;

  // GraphBuilder.
  [[nodiscard]] Tensor make_unit(std::size_t unit, UnitContent content) override;
  void clear_gaps(std::size_t unit, const Tensor& gradients) override;
  [[nodiscard]] ListedStep exchange_step(std::string name, const Tensor& tensor,
                                         std::function<void(std::byte*)> run,
                                         bool in_last_micro_step) override;

  EngineState& state_;
  StatisticsBlock& statistics_;
  const DroppedBlocks& dropped_;
  PlacedBuffers placed_;
};

}  // namespace lockstep::cpu
