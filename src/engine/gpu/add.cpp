#include "lowering.hpp"

namespace lockstep::gpu {
namespace {

/// An addition that is not fused into a norm, with its fused ReLU, if any.
class AddLowering final : public Lowering {
 public:
  AddLowering(const Add& op, const LoweringContext& context)
      : op_(op), id_(context.id), output_(context.analysis.output_of(context.id)) {}

  void forward(ProgramBuilder& builder) override {
    const Tensor left = builder.value(op_.left);
    const Tensor right = builder.value(op_.right);
    Tensor target;
    if (builder.overwritable(op_.left)) {
      target = left;
    } else if (builder.overwritable(op_.right)) {
      target = right;
    } else {
      target = builder.make_like(id_);
    }
    const std::size_t values = builder.extent(id_).values();
    builder.emit("add", {left, right, target},
                 [left, right, target, values, relu = output_ != id_,
                  type = builder.type()](const LaunchContext& context) {
                   add(context.stream(), type, context.at(left), context.at(right),
                       context.at(target), values);
                   if (relu) {
                     relu_forward(context.stream(), type, context.at(target), context.at(target),
                                  values);
                   }
                 });
    builder.set_value(output_, target);
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(id_)) return;
    const Tensor gradient =
        output_ != id_ ? emit_relu_backward(builder, output_) : builder.gradient(id_);
    // Both operands' gradients are this tensor, so neither may be added to in place.
    builder.contribute(op_.left, gradient, ProgramBuilder::Ownership::shared);
    builder.contribute(op_.right, gradient, ProgramBuilder::Ownership::shared);
  }

 private:
  Add op_;
  ValueId id_;
  ValueId output_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const Add& op, const LoweringContext& context) {
  if (context.fused_away()) return nullptr;
  return std::make_unique<AddLowering>(op, context);
}

}  // namespace lockstep::gpu
