#include "../lowering.hpp"
#include "../norm_steps.hpp"
#include "../pooled_norm.hpp"

#include <memory>
#include <optional>

namespace lockstep::gpu {
namespace {

/// A batch norm with its fused addition and ReLU, if any. If the added operand is the output of
/// another norm that nothing else reads, it computes that norm too.
class NormLowering final : public Lowering {
 public:
  NormLowering(const BatchNorm& op, const LoweringContext& context)
      : op_(op), context_(context), node_(context.node()) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    if (op.fused.pool) {
      pooled_ = lower_pooled_norm(op_, context_);
      return pooled_->forward(builder, op);
    }
    extent_ = builder.extent(op.node).matrix();
    if (op.fused.added_norm) added_ = &context_.node(*op.fused.added_norm);
    const Tensor x = builder.value(op.inputs[0]);
    if (op.kind == StepOp::Kind::forward && takes_statistics(builder, node_)) {
      emit_norm_statistics(builder, node_, extent_, x);
    }
    if (op.fused.only_statistics) return builder.set_value(*op.output, x);
    const Tensor y = builder.overwritable(op.inputs[0]) ? x : builder.make_like(op.node);
    const NormOperands norm = norm_operands(builder, node_);
    std::vector<Tensor> touched{x, y, norm.weight.tensor, norm.bias.tensor};
    const auto residual = op.fused.sum ? std::optional(builder.value(op.inputs[1])) : std::nullopt;
    if (residual) touched.push_back(*residual);
    const auto residual_norm =
        added_ != nullptr ? std::optional(norm_operands(builder, *added_)) : std::nullopt;
    std::optional<Tensor> mask;
    if (op.saved) {
      const auto values = static_cast<std::size_t>(extent_.rows * extent_.padded);
      mask = builder.make((values + 7) / 8);
      touched.push_back(*mask);
      builder.set_value(*op.saved, *mask);
    }
    builder.emit("batch norm " + name(), touched,
                 [x, y, mask, relu = op.fused.relu.has_value(), norm, extent = extent_, residual,
                  residual_norm, type = builder.type()](const LaunchContext& context) {
                   const auto of_residual =
                       residual_norm ? std::optional(residual_norm->at(context)) : std::nullopt;
                   batch_norm_apply(context.stream(), type, extent, context.at(x), norm.at(context),
                                    {.residual = residual ? context.at(*residual) : nullptr,
                                     .residual_norm = of_residual ? &*of_residual : nullptr,
                                     .relu = relu,
                                     .mask = context.as<std::uint8_t>(mask)},
                                    context.at(y));
                 });
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    if (pooled_) return pooled_->gradient(builder, op);
    const Incoming incoming = take_gradient(builder, op);
    const std::optional<Tensor> saved =
        op.saved ? std::optional(builder.value(*op.saved)) : std::nullopt;
    const NormSumsOperands sums = norm_sums(builder, node_, builder.value(op.inputs[0]));
    const auto added = added_ != nullptr
                           ? std::optional(norm_sums(builder, *added_, builder.value(op.inputs[1])))
                           : std::nullopt;
    if (!sums.is_fixed || added || incoming.second) {
      emit_parameter_gradients(builder, incoming, saved, sums, added);
    }
    for (const ParameterId id : node_.parameters) builder.complete(id);  // before the data gradient
    emit_norm_share(builder, node_, extent_, sums);
    if (added) emit_norm_share(builder, *added_, extent_, *added);

    const Tensor dy = incoming.sum;
    // A sum computed here is already masked by the ReLU.
    const std::optional<Tensor> mask = incoming.second ? std::nullopt : saved;
    const bool passes_on = op.fused.sum && !added && op.grad_inputs[1];
    const bool exclusive = incoming.second || builder.overwritable(op.grad_output[0]);
    // The added operand's gradient is dy after the ReLU's mask, or dy itself without a ReLU.
    std::optional<Tensor> dz;
    if (passes_on && mask) dz = exclusive ? dy : builder.make_like(op.node);
    const bool in_place = exclusive && !passes_on;
    const Tensor dx = in_place ? dy : builder.make_like(op_.input);
    const auto added_dx =
        added ? std::optional(builder.make_like(*op.fused.added_norm)) : std::nullopt;
    std::vector<Tensor> touched{dy, dx};
    sums.list(touched);
    if (added) added->list(touched);
    for (const auto& tensor : {mask, dz, added_dx}) {
      if (tensor) touched.push_back(*tensor);
    }
    builder.emit(
        "gradient of batch norm " + name(), touched,
        [dy, dx, dz, sums, added, added_dx, mask, extent = extent_,
         type = builder.type()](const LaunchContext& context) {
          const auto of_added =
              added ? std::optional(added->gradient(context, context.at(*added_dx))) : std::nullopt;
          batch_norm_backward_apply(
              context.stream(), type, extent, context.at(dy), context.as<std::uint8_t>(mask),
              static_cast<double>(extent.rows), sums.gradient(context, context.at(dx)),
              of_added ? &*of_added : nullptr, dz ? context.at(*dz) : nullptr);
        });
    if (passes_on) builder.set_value(*op.grad_inputs[1], dz.value_or(dy));
    if (added && op.grad_inputs[1]) builder.set_value(*op.grad_inputs[1], *added_dx);
    if (op.grad_inputs[0]) builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  /// The gradient of the norm's output, as one or two addends.
  struct Incoming {
    Tensor first;
    std::optional<Tensor> second;
    Tensor sum;  ///< `first` if there is no second; else the destination of their sum
  };
  [[nodiscard]] static Incoming take_gradient(ProgramBuilder& builder, const StepOp& op) {
    Incoming result{.first = builder.value(op.grad_output[0]), .second = {}, .sum = {}};
    result.sum = result.first;
    if (op.grad_output.size() == 1) return result;
    result.second = builder.value(op.grad_output[1]);
    if (builder.overwritable(op.grad_output[1])) {
      result.sum = *result.second;
    } else if (!builder.overwritable(op.grad_output[0])) {
      result.sum = builder.make_like(op.node);
    }
    return result;
  }
  [[nodiscard]] const std::string& name() const noexcept { return op_.options.name; }

  void emit_parameter_gradients(ProgramBuilder& builder, const Incoming& incoming,
                                const std::optional<Tensor>& mask, const NormSumsOperands& sums,
                                const std::optional<NormSumsOperands>& sums_of_added) {
    const Tensor workspace = builder.make(reduction_workspace(extent_, sums_of_added ? 2 : 1));
    std::vector<Tensor> touched{incoming.first, workspace};
    if (incoming.second) touched.insert(touched.end(), {*incoming.second, incoming.sum});
    if (mask) touched.push_back(*mask);
    const NormSumsTarget own = norm_sums_target(builder, node_, sums, touched);
    std::optional<NormSumsTarget> added;
    if (sums_of_added) added = norm_sums_target(builder, *added_, *sums_of_added, touched);
    builder.emit("parameter gradients of batch norm " + name(), touched,
                 [incoming, workspace, own, added, mask, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   const bool joins = incoming.second.has_value();
                   const auto of_added = added ? std::optional(added->at(context)) : std::nullopt;
                   batch_norm_backward_sums(
                       context.stream(), type, extent,
                       {.dy = context.at(incoming.first),
                        .other = joins ? context.at(*incoming.second) : nullptr,
                        .masked = joins ? context.at(incoming.sum) : nullptr},
                       context.as<std::uint8_t>(mask), own.at(context),
                       of_added ? &*of_added : nullptr, context.at(workspace));
                 });
  }

  BatchNorm op_;
  LoweringContext context_;
  const Node& node_;
  const Node* added_ = nullptr;  ///< the added norm that is computed here too
  std::unique_ptr<Lowering> pooled_;
  Matrix extent_{};
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const BatchNorm& op,
                                               const LoweringContext& context) {
  return std::make_unique<NormLowering>(op, context);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::BatchNorm>;
