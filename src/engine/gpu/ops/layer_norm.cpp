#include "../lowering.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::gpu {
namespace {

/// Saves the statistics of rows, (2, rows) in fp32.
class LayerNormLowering final : public Lowering {
 public:
  LayerNormLowering(const LayerNorm& op, const LoweringContext& context)
      : op_(op), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    extent_ = builder.extent(op.node).matrix();
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor y = builder.overwritable(op.inputs[0]) ? x : builder.make_like(op.node);
    const Address weight = builder.parameter(parameters_[0]);
    const Address bias = builder.parameter(parameters_[1]);
    std::vector<Tensor> touched{x, y, weight.tensor, bias.tensor};
    std::optional<Tensor> saved;
    if (op.saved) {
      saved = builder.make(2 * static_cast<std::size_t>(extent_.rows) * sizeof(float));
      touched.push_back(*saved);
      builder.set_value(*op.saved, *saved);
    }
    builder.emit("layer norm " + op_.options.name, touched,
                 [x, y, weight, bias, saved, eps = static_cast<float>(op_.options.eps),
                  extent = extent_, type = builder.type()](const LaunchContext& context) {
                   layer_norm_forward(context.stream(), type, extent, context.at(x),
                                      {.weight = context.as<const float>(weight),
                                       .bias = context.as<const float>(bias),
                                       .eps = eps},
                                      saved ? statistics(context, *saved, extent) : RowStatistics(),
                                      context.at(y));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor x = builder.value(op.inputs[0]);
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor saved = builder.value(*op.saved);
    emit_parameter_gradients(builder, x, dy, saved);
    for (const ParameterId id : parameters_) builder.complete(id);  // before the data gradient
    if (!op.grad_inputs[0]) return;
    Tensor dx = dy;
    if (!builder.overwritable(op.grad_output[0])) {
      dx = builder.overwritable(op.inputs[0]) ? x : builder.make_like(op.node);
    }
    const Address weight = builder.parameter(parameters_[0]);
    builder.emit("gradient of layer norm " + op_.options.name, {x, dy, dx, saved, weight.tensor},
                 [x, dy, dx, saved, weight, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   layer_norm_backward(context.stream(), type, extent, context.at(x),
                                       context.at(dy), context.as<const float>(weight),
                                       statistics(context, saved, extent), context.at(dx));
                 });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  [[nodiscard]] static RowStatistics statistics(const LaunchContext& context, const Tensor& saved,
                                                const Matrix& extent) {
    auto* const means = context.as<float>(saved);
    return {.means = means, .inverse_deviations = means + extent.rows};
  }

  void emit_parameter_gradients(ProgramBuilder& builder, Tensor x, Tensor dy, Tensor saved) {
    const Tensor workspace = builder.make(reduction_workspace(extent_));
    std::vector<Tensor> touched{x, dy, saved, workspace};
    const auto weight = builder.trained_gradient_of(parameters_[0], touched);
    const auto bias = builder.trained_gradient_of(parameters_[1], touched);
    if (!weight && !bias) return;
    builder.emit("parameter gradients of layer norm " + op_.options.name, touched,
                 [x, dy, saved, workspace, weight, bias, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   layer_norm_parameter_gradients(context.stream(), type, extent, context.at(x),
                                                  context.at(dy),
                                                  statistics(context, saved, extent),
                                                  {.weight = context.as<float>(weight),
                                                   .bias = context.as<float>(bias),
                                                   .adds = context.accumulate},
                                                  context.at(workspace));
                 });
  }

  LayerNorm op_;
  std::vector<ParameterId> parameters_;
  Matrix extent_{};
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const LayerNorm& op,
                                               const LoweringContext& context) {
  return std::make_unique<LayerNormLowering>(op, context);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::LayerNorm>;
