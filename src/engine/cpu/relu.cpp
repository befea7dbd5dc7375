#include "lowering.hpp"

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
    const ArrivedGradient arrived = builder.arrived_gradient(op, output.desc(), "gradient of relu");
    const Tensor target = arrived.target ? *arrived.target : builder.make(output.desc());
    std::vector<Tensor> touched{output, arrived.first, target};
    if (arrived.second) touched.push_back(*arrived.second);
    builder.emit(std::make_unique<ReluBackwardStep>(ReluBackwardStep::Operands{
                     .output = output.memory,
                     .gradient = arrived.first.memory,
                     .addend = arrived.second ? arrived.second->memory : dnnl::memory(),
                     .target = target.memory}),
                 touched);
    builder.set_value(*op.results[0], target);
  }
};

}  // namespace

std::unique_ptr<Lowering> lower(const Relu& /*op*/, const LoweringContext& /*context*/) {
  return std::make_unique<ReluLowering>();
}

}  // namespace lockstep::cpu
