#include "../lowering.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::gpu {
namespace {

/// Saves the normalizer of each row of scores, in fp32.
class AttentionLowering final : public Lowering {
 public:
  AttentionLowering(const Attention& op, const LoweringContext& /*context*/) : op_(op) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const AttentionExtent extent = extent_of(builder, op.node);
    const Tensor qkv = builder.value(op.inputs[0]);
    const Tensor y = builder.make_like(op.node);
    const Tensor workspace = builder.make(attention_workspace(extent, AttentionPass::forward));
    std::vector<Tensor> touched{qkv, y, workspace};
    std::optional<Tensor> saved;
    if (op.saved) {
      saved = builder.make(static_cast<std::size_t>(extent.batch * extent.heads * extent.tokens) *
                           sizeof(float));
      touched.push_back(*saved);
      builder.set_value(*op.saved, *saved);
    }
    builder.emit(
        "attention " + op_.options.name, touched,
        [qkv, y, workspace, saved, extent, type = builder.type()](const LaunchContext& context) {
          attention_forward(context.stream(), type, extent, context.at(qkv),
                            context.as<float>(saved), context.at(y), context.at(workspace));
        });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const AttentionExtent extent = extent_of(builder, op.node);
    const Tensor qkv = builder.value(op.inputs[0]);
    const Tensor saved = builder.value(*op.saved);
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor dqkv = builder.make_like(op_.input);
    const Tensor workspace = builder.make(attention_workspace(extent, AttentionPass::backward));
    builder.emit("gradient of attention " + op_.options.name, {qkv, saved, dy, dqkv, workspace},
                 [qkv, saved, dy, dqkv, workspace, extent,
                  type = builder.type()](const LaunchContext& context) {
                   attention_backward(context.stream(), type, extent, context.at(qkv),
                                      context.as<const float>(saved), context.at(dy),
                                      context.at(dqkv), context.at(workspace));
                 });
    builder.set_value(*op.grad_inputs[0], dqkv);
  }

 private:
  [[nodiscard]] AttentionExtent extent_of(const ProgramBuilder& builder, ValueId node) const {
    const Extent out = builder.extent(node);
    if (op_.options.heads * out.height * out.height > most_scores_of_sample) {
      fail(ExitStatus::usage,
           "{}: {} heads over {} tokens (on GPUs an image has at most {} pairs of tokens in all "
           "heads); use smaller images, or --device cpu",
           op_.options.name, op_.options.heads, out.height, most_scores_of_sample);
    }
    return {.batch = out.batch,
            .tokens = out.height,
            .heads = op_.options.heads,
            .width = out.channels / op_.options.heads,
            .padded_input = builder.extent(op_.input).padded,
            .padded = out.padded};
  }

  Attention op_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Attention& op,
                                               const LoweringContext& context) {
  return std::make_unique<AttentionLowering>(op, context);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Attention>;
