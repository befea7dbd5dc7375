#pragma once

#include "../batch_labels.hpp"
#include "../lowering/graph_builder.hpp"
#include "activation_pool.hpp"
#include "engine_state.hpp"
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
/// gradient arena, or only in one that adds to it.
struct ListedStep {
  enum class When { always, overwriting, accumulating };
  std::unique_ptr<Step> step;
  When when = When::always;
  std::size_t filled = 0;  ///< end of the gradient arena's final prefix after the step
  [[nodiscard]] bool runs(bool accumulate) const noexcept {
    return when == When::always || (when == When::accumulating) == accumulate;
  }
};

/// Lowers a graph, op by op, to oneDNN's primitives and steps of our own. Tracks each value's
/// tensor, and inserts reorders between formats.
class ProgramBuilder final : public GraphBuilder<Tensor, ListedStep> {
 public:
  /// `labels`: of the batch that forward computes.
  ProgramBuilder(EngineState& state, StatisticsBlock& statistics, const BatchLabels& labels,
                 const ProgramOptions& options);

  [[nodiscard]] EngineState& state() noexcept { return state_; }
  [[nodiscard]] StatisticsBlock& statistics() noexcept { return statistics_; }
  [[nodiscard]] const BatchLabels& labels() const noexcept { return labels_; }
  [[nodiscard]] const dnnl::engine& engine() const noexcept { return state_.engine; }
  [[nodiscard]] dnnl::prop_kind forward_kind() const noexcept;
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
  [[nodiscard]] Tensor input_for_backward(ValueId input, const Tensor& forwards, const Desc& desc,
                                          const std::string& name);
  [[nodiscard]] Tensor parameter(ParameterId id, const Desc& desc, const std::string& name);

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
  /// Whether the backward of the value's only consumer may compute in place.
  [[nodiscard]] bool overwritable_in_backward(ValueId id) const;
  /// As GraphBuilder's if both operands have this format; else empty, and gradient() adds them.
  [[nodiscard]] std::optional<OpenSum> take_open_sum(ValueId id, const Desc& desc);

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
  void emit_reorder(const std::string& name, const Tensor& from, const Tensor& to, When when);
  /// A parameter in its arena format, in the type in which it is gathered.
  [[nodiscard]] Tensor master(ParameterId id);
  [[nodiscard]] Tensor arena_gradient(ParameterId id);
  void add_to_arena(const std::string& name, const Tensor& from, ParameterId id);

  /// A planned tensor's bytes, starting at `offset`, under a descriptor.
  [[nodiscard]] Tensor part(const Tensor& whole, const Desc& desc, std::size_t offset);
  [[nodiscard]] DataType gathered_type(std::size_t unit) const;

  // GraphBuilder.
  [[nodiscard]] Tensor in_format_of(const Tensor& other, const Tensor& tensor,
                                    const std::string& name) override {
    return in_format(tensor, other.desc(), name);
  }
  [[nodiscard]] Tensor make_gradient(ValueId /*id*/, const Tensor& other) override {
    return make(other.desc());
  }
  void emit_sum(ValueId id, const OpenSum& sum) override;
  [[nodiscard]] Tensor make_unit(std::size_t unit, UnitContent content) override;
  void clear_gaps(std::size_t unit, const Tensor& gradients) override;
  [[nodiscard]] ListedStep exchange_step(std::string name, const Tensor& tensor,
                                         std::function<void(std::byte*)> run) override;

  EngineState& state_;
  const Graph& graph_;  ///< its layers are those of the engine's graph, so the analysis holds
  StatisticsBlock& statistics_;
  const BatchLabels& labels_;
  PlacedBuffers placed_;
  std::vector<std::optional<Tensor>> values_;
  std::vector<Recompute> recomputes_;  ///< by value, until backward asks for it
};

}  // namespace lockstep::cpu
