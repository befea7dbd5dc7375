#include "../lowering.hpp"

namespace lockstep::gpu {
namespace {

/// A single pixel is already flat; otherwise values are reordered to PyTorch's (C, H, W).
class FlattenLowering final : public Lowering {
 public:
  explicit FlattenLowering(const Flatten& op) : input_(op.input) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Extent in = builder.extent(input_);
    const Tensor x = builder.value(op.inputs[0]);
    if (in.height * in.width == 1) return builder.set_value(*op.output, x);
    const Tensor y = builder.make_like(op.node);
    builder.emit("flatten", {x, y},
                 [x, y, in, padded = builder.extent(op.node).padded,
                  type = builder.type()](const LaunchContext& context) {
                   flatten_forward(context.stream(), type, in.image(), padded, context.at(x),
                                   context.at(y));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Extent in = builder.extent(input_);
    const Tensor dy = builder.value(op.grad_output[0]);
    if (in.height * in.width == 1) return builder.set_value(*op.grad_inputs[0], dy);
    const Tensor dx = builder.make_like(input_);
    builder.emit("gradient of flatten", {dy, dx},
                 [dy, dx, in, padded = builder.extent(op.node).padded,
                  type = builder.type()](const LaunchContext& context) {
                   flatten_backward(context.stream(), type, in.image(), padded, context.at(dy),
                                    context.at(dx));
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  ValueId input_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Flatten& op,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<FlattenLowering>(op);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Flatten>;
