#include "../lowering.hpp"

namespace lockstep::gpu {
namespace {

/// An addition that is not fused into a norm, with its fused ReLU, if any.
class AddLowering final : public Lowering {
 public:
  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor left = builder.value(op.inputs[0]);
    const Tensor right = builder.value(op.inputs[1]);
    Tensor target;
    if (builder.overwritable(op.inputs[0])) {
      target = left;
    } else if (builder.overwritable(op.inputs[1])) {
      target = right;
    } else {
      target = builder.make_like(op.node);
    }
    const std::size_t values = builder.extent(op.node).values();
    builder.emit("add", {left, right, target},
                 [left, right, target, values, relu = op.fused.relu.has_value(),
                  type = builder.type()](const LaunchContext& context) {
                   add(context.stream(), type, context.at(left), context.at(right),
                       context.at(target), values);
                   if (relu) {
                     ElementWise<Relu>::forward(context.stream(), type, context.at(target),
                                                context.at(target), values);
                   }
                 });
    builder.set_value(*op.output, target);
  }
  void gradient(ProgramBuilder& /*builder*/, const StepOp& /*op*/) override {}  // there is none
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Add& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<AddLowering>();
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Add>;
