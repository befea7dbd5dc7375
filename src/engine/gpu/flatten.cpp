#include "lowering.hpp"

namespace lockstep::gpu {
namespace {

/// A single pixel is already flat; otherwise values are reordered to PyTorch's (C, H, W).
class FlattenLowering final : public Lowering {
 public:
  FlattenLowering(const Flatten& op, const LoweringContext& context) : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder) override {
    const Extent in = builder.extent(op_.input);
    const Tensor x = builder.value(op_.input);
    if (in.height * in.width == 1) {
      builder.set_value(id_, x);
      return;
    }
    const Tensor y = builder.make_like(id_);
    builder.emit("flatten", {x, y},
                 [x, y, in, padded = builder.extent(id_).padded,
                  type = builder.type()](const LaunchContext& context) {
                   flatten_forward(context.stream(), type, in.image(), padded, context.at(x),
                                   context.at(y));
                 });
    builder.set_value(id_, y);
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(op_.input)) return;
    const Extent in = builder.extent(op_.input);
    const Tensor dy = builder.gradient(id_);
    if (in.height * in.width == 1) {
      builder.contribute(op_.input, dy,
                         builder.gradient_is_exclusive(id_) ? ProgramBuilder::Ownership::exclusive
                                                            : ProgramBuilder::Ownership::shared);
      return;
    }
    const Tensor dx = builder.make_like(op_.input);
    builder.emit("gradient of flatten", {dy, dx},
                 [dy, dx, in, padded = builder.extent(id_).padded,
                  type = builder.type()](const LaunchContext& context) {
                   flatten_backward(context.stream(), type, in.image(), padded, context.at(dy),
                                    context.at(dx));
                 });
    builder.contribute(op_.input, dx, ProgramBuilder::Ownership::exclusive);
  }

 private:
  Flatten op_;
  ValueId id_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const Flatten& op, const LoweringContext& context) {
  return std::make_unique<FlattenLowering>(op, context);
}

}  // namespace lockstep::gpu
