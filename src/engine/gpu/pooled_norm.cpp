#include "pooled_norm.hpp"

#include "kernels/pooled_norm.hpp"
#include "norm_steps.hpp"
#include "pool_extent.hpp"

#include <optional>

namespace lockstep::gpu {
namespace {

class PooledNormLowering final : public Lowering {
 public:
  PooledNormLowering(const BatchNorm& op, const LoweringContext& context)
      : op_(op), id_(context.id), context_(context), node_(context.node()) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    pool_ = *op.fused.pool;
    const PoolOptions& pool_options = std::get<MaxPool>(context_.node(pool_).op).options;
    extent_ = pool_extent(builder, id_, pool_, pool_options);
    const Tensor x = builder.value(op.inputs[0]);
    if (op.kind == StepOp::Kind::forward && takes_statistics(builder, node_)) {
      emit_norm_statistics(builder, node_, builder.extent(id_).matrix(), x);
    }
    const Tensor y = builder.make_like(pool_);
    const NormOperands norm = norm_operands(builder, node_);
    std::vector<Tensor> touched{x, y, norm.weight.tensor, norm.bias.tensor};
    std::optional<Tensor> positions;
    if (op.saved) {
      positions = builder.make(builder.extent(pool_).values());
      touched.push_back(*positions);
      builder.set_value(*op.saved, *positions);
    }
    builder.emit("batch norm " + name(), touched,
                 [x, y, norm, positions, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   pooled_norm_forward(context.stream(), type, extent, context.at(x),
                                       norm.at(context), context.at(y),
                                       context.as<std::uint8_t>(positions));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    const Tensor positions = builder.value(*op.saved);
    const NormSumsOperands sums = norm_sums(builder, node_, builder.value(op.inputs[0]));
    const Matrix norm_extent = builder.extent(id_).matrix();
    const Tensor workspace = builder.make(reduction_workspace(norm_extent));
    std::vector<Tensor> touched{dy, positions, workspace};
    const NormSumsTarget target = norm_sums_target(builder, node_, sums, touched);
    const auto incoming = [dy, positions](const LaunchContext& context) {
      return PooledGradient{.dy = context.at(dy),
                            .positions = context.as<const std::uint8_t>(positions)};
    };
    builder.emit("parameter gradients of batch norm " + name(), touched,
                 [incoming, target, workspace, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   pooled_norm_backward_sums(context.stream(), type, extent, incoming(context),
                                             target.at(context), context.at(workspace));
                 });
    for (const ParameterId id : node_.parameters) builder.complete(id);  // before the data gradient
    if (!op.grad_inputs[0]) return;
    emit_norm_share(builder, node_, norm_extent, sums);
    const Tensor dx = builder.make_like(op_.input);
    touched = {dy, positions, dx};
    sums.list(touched);
    builder.emit(
        "gradient of batch norm " + name(), touched,
        [incoming, sums, dx, extent = extent_, elements = static_cast<double>(norm_extent.rows),
         type = builder.type()](const LaunchContext& context) {
          pooled_norm_backward_apply(context.stream(), type, extent, incoming(context), elements,
                                     sums.gradient(context, context.at(dx)));
        });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  [[nodiscard]] std::string name() const { return op_.options.name + " with max pool"; }

  BatchNorm op_;
  ValueId id_;
  LoweringContext context_;
  const Node& node_;
  ValueId pool_ = 0;
  PoolExtent extent_{};
};

}  // namespace

std::unique_ptr<Lowering> lower_pooled_norm(const BatchNorm& op, const LoweringContext& context) {
  return std::make_unique<PooledNormLowering>(op, context);
}

}  // namespace lockstep::gpu
