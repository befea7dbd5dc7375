#include "../batch_norm_state.hpp"
#include "../lowering.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cpu {
namespace {

/// Includes the fused addition and ReLU, if any. In training, statistics are over all ranks if the
/// engine sums over ranks.
class BatchNormLowering final : public Lowering {
 public:
  BatchNormLowering(const BatchNorm& op, const LoweringContext& context)
      : op_(op),
        context_(context),
        scale_(context.node().parameters[0]),
        shift_(context.node().parameters[1]) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    if (op.kind == StepOp::Kind::recompute) return compute_again(builder, op);
    const std::string& name = op_.options.name;
    take_source(builder, op);
    const bool is_fixed = builder.state().graph.has_fixed_statistics(context_.node());
    const bool takes_statistics = builder.training() && !is_fixed;
    state_ = std::make_shared<BatchNormState>(
        source_.desc(),
        BatchNormState::Options{
            .eps = op_.options.eps,
            .relu = op.fused.relu.has_value(),
            .mean = context_.node().statistics[0],
            .variance = context_.node().statistics[1],
            .threads = builder.state().threads,
            .sum = takes_statistics ? builder.state().sum_over_ranks : SumOverRanks(),
            .is_fixed = is_fixed,
            .drop = builder.training() ? op_.options.drop : StochasticDepth(),
            .samples = builder.batch_size(),
            .dropped = &builder.dropped()},
        builder.statistics());
    using Forward = BatchNormState::Forward;
    auto [operands, target] = values(builder, op, source_);
    operands.add(&Forward::scale, builder.parameter(scale_, channels(), name));
    operands.add(&Forward::shift, builder.parameter(shift_, channels(), name));
    if (takes_statistics) {
      builder.emit(operands.step<BatchNormForward>("batch norm " + name, state_), operands.touched);
    } else {
      builder.emit(operands.step<BatchNormInference>("batch norm " + name, state_),
                   operands.touched);
    }
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const std::string& name = op_.options.name;
    std::optional<Tensor> mask;
    if (op.saved) mask = builder.value(*op.saved);
    const Tensor source = source_for_backward(builder, op);
    const GradOutput grad_output = builder.grad_output(op, source.desc(), "gradient of " + name);
    // A sum, or what passes to the addend, is written after the mask.
    const bool writes = grad_output.second || (op.fused.sum && op.fused.relu);
    std::optional<Tensor> masked;
    if (writes) masked = grad_output.target ? *grad_output.target : builder.make(source.desc());
    using Backward = BatchNormState::Backward;
    Bound<Backward> operands;
    operands.add(&Backward::source, source);
    operands.add(&Backward::scale, builder.parameter(scale_, channels(), name));
    operands.add(&Backward::mask, mask);
    operands.add(&Backward::gradient, grad_output.first);
    operands.add(&Backward::gradient_addend, grad_output.second);
    operands.add(&Backward::masked, masked);
    std::optional<Tensor> target;
    if (op.grad_inputs[0]) target = target_of_backward(builder, op, source);
    operands.add(&Backward::target, target);
    builder.emit_parameter_gradients(
        operands.step<BatchNormBackward>("gradient of batch norm " + name, state_),
        operands.touched,
        {{.parameter = scale_, .values = state_->scale_gradient()},
         {.parameter = shift_, .values = state_->shift_gradient()}});
    if (target) builder.set_value(*op.grad_inputs[0], *target);
    if (op.fused.sum && op.grad_inputs[1]) {
      builder.set_value(*op.grad_inputs[1], masked.value_or(grad_output.first));
    }
  }

 private:
  /// The operands of a step, and the tensors it touches.
  template <typename Operands>
  struct Bound {
    Operands memories;
    std::vector<Tensor> touched;

    void add(dnnl::memory Operands::*member, const std::optional<Tensor>& tensor) {
      if (!tensor) return;
      memories.*member = tensor->memory;
      touched.push_back(*tensor);
    }
    template <typename Step>
    [[nodiscard]] std::unique_ptr<Step> step(std::string name,
                                             const std::shared_ptr<BatchNormState>& state) const {
      return std::make_unique<Step>(std::move(name), state, memories);
    }
  };
  struct Values {
    Bound<BatchNormState::Forward> operands;
    Tensor target;
  };

  void take_source(ProgramBuilder& builder, const StepOp& op) {
    const Tensor value = builder.value(op.inputs[0]);
    const Desc given = value.desc();
    source_ = ChannelRows::fits(given)
                  ? value
                  : builder.in_format(value, Desc(dims_of(given), type_of(given), Tag::nhwc),
                                      "input of " + op_.options.name);
    copied_ = source_.buffer != value.buffer;
    taken_ = op.inputs[0];
  }

  void compute_again(ProgramBuilder& builder, const StepOp& op) {
    // Forward's copy of an input that is itself computed again may have been overwritten.
    if (op.inputs[0] != taken_) take_source(builder, op);
    const Values again = values(builder, op, source_for_backward(builder, op));
    builder.emit(
        again.operands.step<BatchNormRecompute>("batch norm again " + op_.options.name, state_),
        again.operands.touched);
    builder.set_value(*op.output, again.target);
  }
  /// The operands that forward and its repetition share, and the output tensor.
  [[nodiscard]] Values values(ProgramBuilder& builder, const StepOp& op,
                              const Tensor& source) const {
    Values result;
    std::optional<Tensor> addend;
    if (op.fused.sum) {
      addend = builder.in_format(builder.value(op.inputs[1]), source.desc(),
                                 "addend of " + op_.options.name);
    }
    if (addend && builder.overwritable(op.inputs[1])) {
      result.target = *addend;
    } else if (builder.overwritable(op.inputs[0])) {
      result.target = source;
    } else {
      result.target = builder.make(source.desc());
    }
    using Forward = BatchNormState::Forward;
    result.operands.add(&Forward::source, source);
    result.operands.add(&Forward::addend, addend);
    result.operands.add(&Forward::target, result.target);
    if (op.saved) {
      const Tensor mask = builder.make(Desc({state_->mask_bytes()}, DataType::u8, Tag::a));
      result.operands.add(&Forward::mask, mask);
      builder.set_value(*op.saved, mask);
    }
    return result;
  }
  /// Overwrites the source if nothing else reads it any more.
  [[nodiscard]] Tensor target_of_backward(ProgramBuilder& builder, const StepOp& op,
                                          const Tensor& source) const {
    if (copied_ || builder.overwritable(op.inputs[0])) return source;
    return builder.make(source.desc());
  }
  [[nodiscard]] Tensor source_for_backward(ProgramBuilder& builder, const StepOp& op) const {
    if (copied_) return source_;
    return builder.in_format(builder.value(op.inputs[0]), source_.desc(),
                             "input of " + op_.options.name);
  }
  [[nodiscard]] Desc channels() const { return f32(Dims{dims_of(source_.desc())[1]}, Tag::x); }

  BatchNorm op_;
  LoweringContext context_;
  ParameterId scale_;
  ParameterId shift_;
  std::shared_ptr<BatchNormState> state_;
  Tensor source_;
  bool copied_ = false;    ///< the source has no other reader
  StepValueId taken_ = 0;  ///< the value that the source is, or is a copy of
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const BatchNorm& op,
                                               const LoweringContext& context) {
  return std::make_unique<BatchNormLowering>(op, context);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::BatchNorm>;
