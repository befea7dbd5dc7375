#include "batch_norm_state.hpp"
#include "lowering.hpp"

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
        output_(context.analysis.output_of(context.id)),
        scale_(context.node().parameters[0]),
        shift_(context.node().parameters[1]),
        addend_(context.analysis.addend_of(context.graph, context.id)),
        relu_(context.analysis.has_relu(context.id)) {}

  void forward(ProgramBuilder& builder) override {
    const std::string& name = op_.options.name;
    const Tensor value = builder.value(op_.input);
    const Desc given = value.desc();
    source_ = ChannelRows::fits(given)
                  ? value
                  : builder.in_format(value, Desc(dims_of(given), type_of(given), Tag::nhwc),
                                      "input of " + name);
    copied_ = source_.buffer != value.buffer;
    const bool is_fixed = builder.state().graph.has_fixed_statistics(context_.node());
    const bool takes_statistics = builder.training() && !is_fixed;
    state_ = std::make_shared<BatchNormState>(
        source_.desc(),
        BatchNormState::Options{
            .eps = op_.options.eps,
            .relu = relu_,
            .mean = context_.node().statistics[0],
            .variance = context_.node().statistics[1],
            .threads = builder.state().threads,
            .sum = takes_statistics ? builder.state().sum_over_ranks : SumOverRanks(),
            .is_fixed = is_fixed,
            .drop = builder.training() ? op_.options.drop : StochasticDepth(),
            .samples = builder.batch_size(),
            .labels = &builder.labels()},
        builder.statistics());
    recomputes_mask_ = builder.recomputes(output_) &&
                       context_.analysis.read_in_backward[static_cast<std::size_t>(output_)];
    if (builder.training() && relu_ && !recomputes_mask_) mask_ = make_mask(builder);
    using Forward = BatchNormState::Forward;
    auto [operands, target] = values(builder, source_);
    operands.add(&Forward::scale, builder.parameter(scale_, channels(), name));
    operands.add(&Forward::shift, builder.parameter(shift_, channels(), name));
    operands.add(&Forward::mask, mask_);
    if (takes_statistics) {
      builder.emit(operands.step<BatchNormForward>("batch norm " + name, state_), operands.touched);
    } else {
      builder.emit(operands.step<BatchNormInference>("batch norm " + name, state_),
                   operands.touched);
    }
    builder.set_value(output_, target, [this](ProgramBuilder& again) {
      Values more = values(again, source_for_backward(again));
      if (relu_ && recomputes_mask_) mask_ = make_mask(again);
      if (recomputes_mask_) more.operands.add(&Forward::mask, mask_);
      again.emit(
          more.operands.step<BatchNormRecompute>("batch norm again " + op_.options.name, state_),
          more.operands.touched);
      return more.target;
    });
  }

  void backward(ProgramBuilder& builder) override {
    const std::string& name = op_.options.name;
    if (relu_ && !mask_) static_cast<void>(builder.value(output_));  // recomputes the mask too
    const Tensor source = source_for_backward(builder);
    const Gradient gradient = take_gradient(builder, source.desc());
    using Backward = BatchNormState::Backward;
    Bound<Backward> operands;
    operands.add(&Backward::source, source);
    operands.add(&Backward::scale, builder.parameter(scale_, channels(), name));
    operands.add(&Backward::mask, mask_);
    operands.add(&Backward::gradient, gradient.arrived);
    operands.add(&Backward::gradient_addend, gradient.addend);
    operands.add(&Backward::masked, gradient.masked);
    std::optional<Tensor> target;
    if (builder.needs_gradient(op_.input)) target = target_of_backward(builder, source);
    operands.add(&Backward::target, target);
    builder.emit_parameter_gradients(
        operands.step<BatchNormBackward>("gradient of batch norm " + name, state_),
        operands.touched,
        {{.parameter = scale_, .values = state_->scale_gradient()},
         {.parameter = shift_, .values = state_->shift_gradient()}});
    if (target) {
      builder.contribute(op_.input, *target, ProgramBuilder::Ownership::exclusive, name);
    }
    if (addend_) {
      builder.contribute(*addend_, gradient.masked.value_or(gradient.arrived), gradient.ownership,
                         name);
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
  /// The gradient of the norm's output, after its ReLU if it has one.
  struct Gradient {
    Tensor arrived;
    std::optional<Tensor> addend;         ///< pending
    std::optional<Tensor> masked;         ///< receives the gradient of the fused addition
    ProgramBuilder::Ownership ownership;  ///< of `masked`, else of `arrived`
  };

  /// The operands that forward and its recomputation share, and the output tensor.
  [[nodiscard]] Values values(ProgramBuilder& builder, const Tensor& source) const {
    Values result;
    std::optional<Tensor> addend;
    if (addend_) {
      addend = builder.in_format(builder.value(*addend_), source.desc(),
                                 "addend of " + op_.options.name);
    }
    if (addend && builder.overwritable(*addend_)) {
      result.target = *addend;
    } else if (builder.overwritable(op_.input)) {
      result.target = source;
    } else {
      result.target = builder.make(source.desc());
    }
    result.operands.add(&BatchNormState::Forward::source, source);
    result.operands.add(&BatchNormState::Forward::addend, addend);
    result.operands.add(&BatchNormState::Forward::target, result.target);
    return result;
  }
  [[nodiscard]] Gradient take_gradient(ProgramBuilder& builder, const Desc& desc) const {
    if (const auto sum = builder.take_open_sum(output_, desc)) {
      return {.arrived = sum->left,
              .addend = sum->right,
              .masked = sum->target,
              .ownership = ProgramBuilder::Ownership::exclusive};
    }
    const Tensor& given = builder.gradient(output_);
    Gradient gradient{.arrived = builder.in_format(given, desc, "gradient of " + op_.options.name),
                      .addend = {},
                      .masked = {},
                      .ownership = ProgramBuilder::Ownership::shared};
    const bool ours =
        builder.gradient_is_exclusive(output_) || gradient.arrived.buffer != given.buffer;
    if (addend_ && relu_) gradient.masked = ours ? gradient.arrived : builder.make(desc);
    if (ours || gradient.masked) gradient.ownership = ProgramBuilder::Ownership::exclusive;
    return gradient;
  }
  /// Overwrites the source if nothing else reads it any more.
  [[nodiscard]] Tensor target_of_backward(ProgramBuilder& builder, const Tensor& source) const {
    if (copied_ || builder.overwritable_in_backward(op_.input)) return source;
    return builder.make(source.desc());
  }
  [[nodiscard]] Tensor source_for_backward(ProgramBuilder& builder) const {
    return builder.input_for_backward(op_.input, source_, source_.desc(), op_.options.name);
  }
  [[nodiscard]] Tensor make_mask(ProgramBuilder& builder) const {
    return builder.make(Desc({state_->mask_bytes()}, DataType::u8, Tag::a));
  }
  [[nodiscard]] Desc channels() const { return f32(Dims{dims_of(source_.desc())[1]}, Tag::x); }

  BatchNorm op_;
  LoweringContext context_;
  ValueId output_;
  ParameterId scale_;
  ParameterId shift_;
  std::optional<ValueId> addend_;
  bool relu_;
  std::shared_ptr<BatchNormState> state_;
  Tensor source_;
  bool copied_ = false;  ///< the source has no other reader
  /// Whether the mask is recomputed with the output instead of kept.
  bool recomputes_mask_ = false;
  std::optional<Tensor> mask_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context) {
  return std::make_unique<BatchNormLowering>(op, context);
}

}  // namespace lockstep::cpu
