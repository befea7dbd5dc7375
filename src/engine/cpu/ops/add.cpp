#include "../lowering.hpp"

namespace lockstep::cpu {
namespace {

/// Includes the fused ReLU, if any.
class AddLowering final : public Lowering {
 public:
  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor left = builder.value(op.inputs[0]);
    const Tensor right =
        builder.in_format(builder.value(op.inputs[1]), left.desc(), "right operand of add");
    Tensor target;
    if (builder.overwritable(op.inputs[0])) {
      target = left;
    } else if (builder.overwritable(op.inputs[1])) {
      target = right;
    } else {
      target = builder.make(left.desc());
    }
    builder.emit(std::make_unique<AddStep>(AddStep::Operands{.left = left.memory,
                                                             .right = right.memory,
                                                             .target = target.memory,
                                                             .relu = op.fused.relu.has_value()}),
                 {left, right, target});
    builder.set_value(*op.output, target);
  }
  void gradient(ProgramBuilder& /*builder*/, const StepOp& /*op*/) override {}  // there is none
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Add& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<AddLowering>();
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Add>;
