#include "../lowering.hpp"

#include <memory>
#include <string>
#include <vector>

namespace lockstep::gpu {
namespace {

TokenExtent extent_of(const ProgramBuilder& builder, ValueId tokens) {
  const Extent extent = builder.extent(tokens);
  return {.batch = extent.batch, .tokens = extent.height * extent.width, .padded = extent.padded};
}

/// Copies the tokens from `first` on of one value, or its gradient, to those of another; the rest
/// of these becomes zero.
struct TokenCopy {
  ValueId from;
  ValueId to;
  std::int64_t first = 0;
};
Tensor emit_copy(ProgramBuilder& builder, const std::string& name, const TokenCopy& copy,
                 Tensor from) {
  const Tensor to = builder.make_like(copy.to);
  builder.emit(name, {from, to},
               [from, to, first = copy.first, extent = extent_of(builder, copy.to),
                from_tokens = extent_of(builder, copy.from).tokens,
                type = builder.type()](const LaunchContext& context) {
                 copy_tokens(context.stream(), type, extent, context.at(from), from_tokens, first,
                             context.at(to));
               });
  return to;
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
    const TokenCopy pixels{.from = op.node, .to = op_.input, .first = 1};
    builder.set_value(*op.grad_inputs[0], emit_copy(builder, "gradient of tokens", pixels, dy));
  }

 private:
  void emit_parameter_gradients(ProgramBuilder& builder, Tensor dy,
                                const TokenExtent& extent) const {
    std::vector<Tensor> touched{dy};
    const auto class_token = builder.trained_gradient_of(parameters_[0], touched);
    const auto positions = builder.trained_gradient_of(parameters_[1], touched);
    if (!class_token && !positions) return;
    builder.emit(
        "parameter gradients of tokens", touched,
        [dy, class_token, positions, extent, type = builder.type()](const LaunchContext& context) {
          tokens_parameter_gradients(context.stream(), type, extent, context.at(dy),
                                     {.class_token = context.as<float>(class_token),
                                      .positions = context.as<float>(positions),
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
    const TokenCopy first{.from = input_, .to = op.node};
    builder.set_value(*op.output,
                      emit_copy(builder, "first token", first, builder.value(op.inputs[0])));
  }
  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const TokenCopy first{.from = op.node, .to = input_};
    builder.set_value(*op.grad_inputs[0], emit_copy(builder, "gradient of first token", first,
                                                    builder.value(op.grad_output[0])));
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
