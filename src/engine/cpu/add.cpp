#include "lowering.hpp"

namespace lockstep::cpu {
namespace {

/// Includes the fused ReLU, if any.
class AddLowering final : public Lowering {
 public:
  AddLowering(const Add& op, const LoweringContext& context)
      : op_(op), id_(context.id), output_(context.analysis.output_of(context.id)) {}

  void forward(ProgramBuilder& builder) override {
    builder.set_value(output_, emit_add(builder),
                      [this](ProgramBuilder& again) { return emit_add(again); });
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(id_)) return;
    const Tensor gradient =
        output_ != id_ ? emit_relu_backward(builder, output_) : builder.gradient(id_);
    // Both operands' gradients are this tensor, so neither may be added to in place.
    builder.contribute(op_.left, gradient, ProgramBuilder::Ownership::shared, "add");
    builder.contribute(op_.right, gradient, ProgramBuilder::Ownership::shared, "add");
  }

 private:
  [[nodiscard]] Tensor emit_add(ProgramBuilder& builder) const {
    const Tensor left = builder.value(op_.left);
    const Tensor right =
        builder.in_format(builder.value(op_.right), left.desc(), "right operand of add");
    Tensor target;
    if (builder.overwritable(op_.left)) {
      target = left;
    } else if (builder.overwritable(op_.right)) {
      target = right;
    } else {
      target = builder.make(left.desc());
    }
    builder.emit(std::make_unique<AddStep>(AddStep::Operands{.left = left.memory,
                                                             .right = right.memory,
                                                             .target = target.memory,
                                                             .relu = output_ != id_}),
                 {left, right, target});
    return target;
  }

  Add op_;
  ValueId id_;
  ValueId output_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const Add& op, const LoweringContext& context) {
  if (context.fused_away()) return nullptr;
  return std::make_unique<AddLowering>(op, context);
}

}  // namespace lockstep::cpu
