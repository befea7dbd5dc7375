#include "../lowering.hpp"

namespace lockstep::gpu {
namespace {

/// Forward is of a ReLU that is not fused into a norm or an add.
class ReluLowering final : public Lowering {
 public:
  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.overwritable(op.inputs[0]) ? x : builder.make_like(op.node);
    builder.emit("relu", {x, y},
                 [x, y, values = builder.extent(op.node).values(),
                  type = builder.type()](const LaunchContext& context) {
                   relu_forward(context.stream(), type, context.at(x), context.at(y), values);
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor y = builder.value(*op.output);
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dx = builder.overwritable(op.grad_output[0]) ? dy : builder.make_like(op.node);
    builder.emit("gradient of relu", {y, dy, dx},
                 [y, dy, dx, values = builder.extent(op.node).values(),
                  type = builder.type()](const LaunchContext& context) {
                   relu_backward(context.stream(), type, context.at(y), context.at(dy),
                                 context.at(dx), values);
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Relu& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<ReluLowering>();
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Relu>;
