#include "lowering.hpp"

namespace lockstep::gpu {
namespace {

/// A ReLU that is not fused into a norm or an add.
class ReluLowering final : public Lowering {
 public:
  ReluLowering(const Relu& op, const LoweringContext& context) : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder) override {
    const Tensor x = builder.value(op_.input);
    const Tensor y = builder.overwritable(op_.input) ? x : builder.make_like(id_);
    builder.emit("relu", {x, y},
                 [x, y, values = builder.extent(id_).values(),
                  type = builder.type()](const LaunchContext& context) {
                   relu_forward(context.stream(), type, context.at(x), context.at(y), values);
                 });
    builder.set_value(id_, y);
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(op_.input)) return;
    const Tensor dx = emit_relu_backward(builder, id_);
    builder.contribute(op_.input, dx, ProgramBuilder::Ownership::exclusive);
  }

 private:
  Relu op_;
  ValueId id_;
};

}  // namespace

Tensor emit_relu_backward(ProgramBuilder& builder, ValueId relu) {
  const Tensor y = builder.value(relu);
  const Tensor dy = builder.gradient(relu);
  const Tensor dx = builder.gradient_is_exclusive(relu) ? dy : builder.make_like(relu);
  builder.emit("gradient of relu", {y, dy, dx},
               [y, dy, dx, values = builder.extent(relu).values(),
                type = builder.type()](const LaunchContext& context) {
                 relu_backward(context.stream(), type, context.at(y), context.at(dy),
                               context.at(dx), values);
               });
  return dx;
}

std::unique_ptr<Lowering> lower(const Relu& op, const LoweringContext& context) {
  if (context.fused_away()) return nullptr;
  return std::make_unique<ReluLowering>(op, context);
}

}  // namespace lockstep::gpu
