#include "../lowering.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::gpu {
namespace {

TokenExtent extent_of(const ProgramBuilder& builder, ValueId tokens) {
  const Extent extent = builder.extent(tokens);
  return {.batch = extent.batch, .tokens = extent.height * extent.width, .padded = extent.padded};
}

class TokensLowering final : public Lowering {
 public:
  TokensLowering(const Tokens& op, const LoweringContext& context)
      : op_(op), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.make_like(op.node);
    const Address class_token = builder.parameter(parameters_[0]);
    const Address positions = builder.parameter(parameters_[1]);
    builder.emit("tokens", {x, y, class_token.tensor, positions.tensor},
                 [x, y, class_token, positions, extent = extent_of(builder, op.node),
                  type = builder.type()](const LaunchContext& context) {
                   tokens_forward(context.stream(), type, extent, context.at(x),
                                  context.as<const float>(class_token),
                                  context.as<const float>(positions), context.at(y));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    const TokenExtent extent = extent_of(builder, op.node);
    emit_parameter_gradients(builder, dy, extent);
    for (const ParameterId id : parameters_) builder.complete(id);  // before the data gradient
    if (!op.grad_inputs[0]) return;
    const Tensor dx = builder.make_like(op_.input);
    builder.emit("gradient of tokens", {dy, dx},
                 [dy, dx, extent, type = builder.type()](const LaunchContext& context) {
                   tokens_backward(context.stream(), type, extent, context.at(dy), context.at(dx));
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  void emit_parameter_gradients(ProgramBuilder& builder, Tensor dy,
                                const TokenExtent& extent) const {
    std::vector<Tensor> touched{dy};
    const auto gradient_of = [&](ParameterId id) -> std::optional<Address> {
      if (builder.is_frozen(id)) return std::nullopt;
      const Address address = builder.gradient_of(id);
      touched.push_back(address.tensor);
      return address;
    };
    const std::optional<Address> class_token = gradient_of(parameters_[0]);
    const std::optional<Address> positions = gradient_of(parameters_[1]);
    if (!class_token && !positions) return;
    builder.emit(
        "parameter gradients of tokens", touched,
        [dy, class_token, positions, extent, type = builder.type()](const LaunchContext& context) {
          tokens_parameter_gradients(
              context.stream(), type, extent, context.at(dy),
              {.class_token = class_token ? context.as<float>(*class_token) : nullptr,
               .positions = positions ? context.as<float>(*positions) : nullptr,
               .adds = context.accumulate});
        });
  }

  Tokens op_;
  std::vector<ParameterId> parameters_;
};

class FirstTokenLowering final : public Lowering {
 public:
  explicit FirstTokenLowering(const FirstToken& op) : input_(op.input) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.make_like(op.node);
    builder.emit("first token", {x, y},
                 [x, y, extent = extent_of(builder, input_),
                  type = builder.type()](const LaunchContext& context) {
                   first_token_forward(context.stream(), type, extent, context.at(x),
                                       context.at(y));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dx = builder.make_like(input_);
    builder.emit("gradient of first token", {dy, dx},
                 [dy, dx, extent = extent_of(builder, input_),
                  type = builder.type()](const LaunchContext& context) {
                   first_token_backward(context.stream(), type, extent, context.at(dy),
                                        context.at(dx));
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  ValueId input_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Tokens& op, const LoweringContext& context) {
  return std::make_unique<TokensLowering>(op, context);
}
static std::unique_ptr<Lowering> make_lowering(const FirstToken& op,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<FirstTokenLowering>(op);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Tokens>;
template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::FirstToken>;
