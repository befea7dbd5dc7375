#include "../lowering.hpp"

#include <memory>
#include <string>

namespace lockstep::gpu {
namespace {

/// An op on each value of its input that is not fused into another, by the kernels for T; in place
/// if nothing else reads the input.
template <typename T>
class ElementWiseLowering final : public Lowering {
 public:
  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.overwritable(op.inputs[0]) ? x : builder.make_like(op.node);
    builder.emit(std::string(T::op_name), {x, y},
                 [x, y, values = builder.extent(op.node).values(),
                  type = builder.type()](const LaunchContext& context) {
                   ElementWise<T>::forward(context.stream(), type, context.at(x), context.at(y),
                                           values);
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    // What the derivative reads: the output or the input.
    const Tensor operand = builder.value(op.output ? *op.output : op.inputs[0]);
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dx = builder.overwritable(op.grad_output[0]) ? dy : builder.make_like(op.node);
    builder.emit("gradient of " + std::string(T::op_name), {operand, dy, dx},
                 [operand, dy, dx, values = builder.extent(op.node).values(),
                  type = builder.type()](const LaunchContext& context) {
                   ElementWise<T>::backward(context.stream(), type, context.at(operand),
                                            context.at(dy), context.at(dx), values);
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }
};

}  // namespace

template <typename T>
static std::unique_ptr<Lowering> make_lowering(const T& /*op*/,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<ElementWiseLowering<T>>();
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Relu>;
template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Gelu>;
