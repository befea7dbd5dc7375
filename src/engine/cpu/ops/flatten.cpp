#include "../lowering.hpp"

namespace lockstep::cpu {
namespace {

/// Plain NCHW viewed as (N, CHW): a reorder if the input is blocked, else no work.
class FlattenLowering final : public Lowering {
 public:
  explicit FlattenLowering(const Flatten& op) : input_(op.input) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor source =
        builder.in_format(builder.value(op.inputs[0]), image(builder), "input of flatten");
    builder.set_value(*op.output, builder.view(source, flat(builder, op)));
  }
  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor gradient = builder.in_format(builder.value(op.grad_output[0]), flat(builder, op),
                                              "gradient of flatten");
    builder.set_value(*op.grad_inputs[0], builder.view(gradient, image(builder)));
  }

 private:
  [[nodiscard]] Desc image(const ProgramBuilder& builder) const {
    return plain(builder.batch_shape(input_), builder.activations());
  }
  [[nodiscard]] static Desc flat(const ProgramBuilder& builder, const StepOp& op) {
    return plain(builder.batch_shape(op.node), builder.activations());
  }

  ValueId input_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Flatten& op,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<FlattenLowering>(op);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Flatten>;
