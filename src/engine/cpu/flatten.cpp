#include "lowering.hpp"

namespace lockstep::cpu {
namespace {

/// Plain NCHW viewed as (N, CHW): a reorder if the input is blocked, else no work.
class FlattenLowering final : public Lowering {
 public:
  FlattenLowering(const Flatten& op, const LoweringContext& context) : op_(op), id_(context.id) {}

  void forward(ProgramBuilder& builder) override {
    const Desc image = plain(builder.batch_shape(op_.input), builder.activations());
    const Tensor source = builder.in_format(builder.value(op_.input), image, "input of flatten");
    builder.set_value(id_,
                      builder.view(source, plain(builder.batch_shape(id_), builder.activations())));
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(op_.input)) return;
    const Tensor gradient = builder.in_format(
        builder.gradient(id_), plain(builder.batch_shape(id_), builder.activations()),
        "gradient of flatten");
    // A view of an exclusive gradient is exclusive too.
    const auto ownership = builder.gradient_is_exclusive(id_) ? ProgramBuilder::Ownership::exclusive
                                                              : ProgramBuilder::Ownership::shared;
    builder.contribute(
        op_.input,
        builder.view(gradient, plain(builder.batch_shape(op_.input), builder.activations())),
        ownership, "flatten");
  }

 private:
  Flatten op_;
  ValueId id_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const Flatten& op, const LoweringContext& context) {
  return std::make_unique<FlattenLowering>(op, context);
}

}  // namespace lockstep::cpu
