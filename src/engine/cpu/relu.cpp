#include "lowering.hpp"

namespace lockstep::cpu {
namespace {

/// A ReLU that is not fused into a norm or an add.
class ReluLowering final : public Lowering {
 public:
  ReluLowering(const Relu& op, const LoweringContext& context) : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder) override {
    const Tensor source = builder.value(op_.input);
    const Tensor target = builder.overwritable(op_.input) ? source : builder.make(source.desc());
    builder.emit(std::make_unique<ReluStep>(source.memory, target.memory), {source, target});
    builder.set_value(id_, target);
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(op_.input)) return;
    const Tensor target = emit_relu_backward(builder, id_);
    builder.contribute(op_.input, target, ProgramBuilder::Ownership::exclusive, "relu");
  }

 private:
  Relu op_;
  ValueId id_;
};

}  // namespace

Tensor emit_relu_backward(ProgramBuilder& builder, ValueId relu) {
  const Tensor output = builder.value(relu);
  if (const auto sum = builder.take_open_sum(relu, output.desc())) {
    builder.emit(std::make_unique<ReluBackwardStep>(
                     ReluBackwardStep::Operands{.output = output.memory,
                                                .gradient = sum->left.memory,
                                                .addend = sum->right.memory,
                                                .target = sum->target.memory}),
                 {output, sum->left, sum->right, sum->target});
    return sum->target;
  }
  const Tensor& arrived = builder.gradient(relu);
  const Tensor gradient = builder.in_format(arrived, output.desc(), "gradient of relu");
  const bool in_place = builder.gradient_is_exclusive(relu) || gradient.buffer != arrived.buffer;
  Tensor target = in_place ? gradient : builder.make(output.desc());
  builder.emit(
      std::make_unique<ReluBackwardStep>(ReluBackwardStep::Operands{.output = output.memory,
                                                                    .gradient = gradient.memory,
                                                                    .addend = {},
                                                                    .target = target.memory}),
      {output, gradient, target});
  return target;
}

std::unique_ptr<Lowering> lower(const Relu& op, const LoweringContext& context) {
  if (context.fused_away()) return nullptr;
  return std::make_unique<ReluLowering>(op, context);
}

}  // namespace lockstep::cpu
