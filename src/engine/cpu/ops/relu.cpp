#include "../lowering.hpp"

namespace lockstep::cpu {
namespace {

/// Forward is of a ReLU that is not fused into a norm or an add.
class ReluLowering final : public Lowering {
 public:
  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor source = builder.value(op.inputs[0]);
    const Tensor target = builder.overwritable(op.inputs[0]) ? source : builder.make(source.desc());
    builder.emit(std::make_unique<ReluStep>(source.memory, target.memory), {source, target});
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor output = builder.value(*op.output);
    const GradOutput grad_output = builder.grad_output(op, output.desc(), "gradient of relu");
    const Tensor target = grad_output.target ? *grad_output.target : builder.make(output.desc());
    std::vector<Tensor> touched{output, grad_output.first, target};
    if (grad_output.second) touched.push_back(*grad_output.second);
    builder.emit(std::make_unique<ReluBackwardStep>(ReluBackwardStep::Operands{
                     .output = output.memory,
                     .gradient = grad_output.first.memory,
                     .addend = grad_output.second ? grad_output.second->memory : dnnl::memory(),
                     .target = target.memory}),
                 touched);
    builder.set_value(*op.grad_inputs[0], target);
  }
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Relu& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<ReluLowering>();
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Relu>;
