#include "lowering.hpp"
#include "norm_steps.hpp"
#include "pooled_norm.hpp"

#include <memory>
#include <optional>

namespace lockstep::gpu {
namespace {

/// A batch norm with its fused addition and ReLU, if any. If the added operand is the output of
/// another norm that nothing else reads, it computes that norm too.
class NormLowering final : public Lowering {
 public:
  struct Options {
    BatchNorm norm;
    ValueId norm_id;
    ValueId output;  ///< the value that this norm writes
    std::optional<ValueId> residual;
    bool relu = false;
    bool residual_is_norm = false;  ///< and is computed here, from its input
    bool fused_away = false;        ///< another norm computes this one
  };
  NormLowering(Options options, const LoweringContext& context)
      : options_(std::move(options)), node_(context.node(options_.norm_id)) {
    if (options_.residual_is_norm) added_ = &context.node(*options_.residual);
  }

  void forward(ProgramBuilder& builder) override {
    extent_ = builder.extent(options_.norm_id).matrix();
    const Tensor x = builder.value(options_.norm.input);
    if (takes_statistics(builder, node_)) {
      emit_norm_statistics(builder, node_, extent_, x);
    }
    if (options_.fused_away) return builder.set_value(options_.output, x);
    const Tensor y =
        builder.overwritable(options_.norm.input) ? x : builder.make_like(options_.norm_id);
    const NormOperands norm = norm_operands(builder, node_);
    std::vector<Tensor> touched{x, y, norm.weight.tensor, norm.bias.tensor};
    const auto residual =
        options_.residual ? std::optional(builder.value(*options_.residual)) : std::nullopt;
    if (residual) touched.push_back(*residual);
    const auto residual_norm =
        added_ != nullptr ? std::optional(norm_operands(builder, *added_)) : std::nullopt;
    if (options_.relu && builder.training()) {
      const auto values = static_cast<std::size_t>(extent_.rows * extent_.padded);
      mask_ = builder.make((values + 7) / 8);
      touched.push_back(*mask_);
    }
    builder.emit("batch norm " + name(), touched,
                 [x, y, mask = mask_, relu = options_.relu, norm, extent = extent_, residual,
                  residual_norm, type = builder.type()](const LaunchContext& context) {
                   const auto of_residual =
                       residual_norm ? std::optional(residual_norm->at(context)) : std::nullopt;
                   batch_norm_apply(context.stream(), type, extent, context.at(x), norm.at(context),
                                    {.residual = residual ? context.at(*residual) : nullptr,
                                     .residual_norm = of_residual ? &*of_residual : nullptr,
                                     .relu = relu,
                                     .mask = mask ? context.as<std::uint8_t>(*mask) : nullptr},
                                    context.at(y));
                 });
    builder.set_value(options_.output, y);
  }

  void backward(ProgramBuilder& builder) override {
    if (options_.fused_away) return pass_on_gradient(builder);
    const Incoming incoming = take_gradient(builder);
    const NormSumsOperands sums = norm_sums(builder, node_, builder.value(options_.norm.input));
    const auto added =
        added_ != nullptr
            ? std::optional(norm_sums(builder, *added_, builder.value(*options_.residual)))
            : std::nullopt;
    if (sums.is_fixed && !added && !incoming.second) {
      for (const ParameterId id : node_.parameters) builder.skip(id);
    } else {
      emit_parameter_gradients(builder, incoming, sums, added);
    }
    emit_norm_share(builder, node_, extent_, sums);
    if (added) emit_norm_share(builder, *added_, extent_, *added);

    const Tensor dy = incoming.sum;
    // A sum computed here is already masked by the ReLU.
    const std::optional<Tensor> mask = incoming.second ? std::nullopt : mask_;
    const bool passes_on =
        options_.residual && !added && builder.needs_gradient(*options_.residual);
    const bool exclusive = builder.gradient_is_exclusive(options_.output);
    // The added operand's gradient is dy after the ReLU's mask, or dy itself without a ReLU.
    std::optional<Tensor> dz;
    if (passes_on && mask) dz = exclusive ? dy : builder.make_like(options_.norm_id);
    const bool in_place = exclusive && !passes_on;
    const Tensor dx = in_place ? dy : builder.make_like(options_.norm.input);
    const auto added_dx =
        added ? std::optional(builder.make_like(*options_.residual)) : std::nullopt;
    std::vector<Tensor> touched{dy, dx};
    sums.list(touched);
    if (added) added->list(touched);
    for (const auto& tensor : {mask, dz, added_dx}) {
      if (tensor) touched.push_back(*tensor);
    }
    builder.emit("gradient of batch norm " + name(), touched,
                 [dy, dx, dz, sums, added, added_dx, mask, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   const auto of_added =
                       added ? std::optional(added->gradient(context, context.at(*added_dx)))
                             : std::nullopt;
                   batch_norm_backward_apply(
                       context.stream(), type, extent, context.at(dy),
                       mask ? context.as<std::uint8_t>(*mask) : nullptr,
                       static_cast<double>(extent.rows), sums.gradient(context, context.at(dx)),
                       of_added ? &*of_added : nullptr, dz ? context.at(*dz) : nullptr);
                 });
    if (passes_on) {
      // No step reads a sum computed here once dx is computed.
      const bool own = dz || incoming.second;
      builder.contribute(
          *options_.residual, dz.value_or(dy),
          own ? ProgramBuilder::Ownership::exclusive : ProgramBuilder::Ownership::shared);
    }
    if (added) {
      builder.contribute(*options_.residual, *added_dx, ProgramBuilder::Ownership::exclusive);
    }
    builder.contribute(options_.norm.input, dx, ProgramBuilder::Ownership::exclusive);
  }

 private:
  /// The other norm's step has computed the gradients of this norm's input and parameters. The
  /// latter are reported as final with the parameters that follow them in the arena.
  void pass_on_gradient(ProgramBuilder& builder) {
    builder.contribute(options_.norm.input, builder.gradient(options_.output),
                       ProgramBuilder::Ownership::exclusive);
  }

  /// The gradient of the norm's output, as one or two addends.
  struct Incoming {
    Tensor first;
    std::optional<Tensor> second;
    Tensor sum;  ///< `first` if there is no second; else the destination of their sum
  };
  [[nodiscard]] Incoming take_gradient(ProgramBuilder& builder) const {
    if (const auto open = builder.take_open_sum(options_.output)) {
      return {.first = open->left, .second = open->right, .sum = open->target};
    }
    const Tensor gradient = builder.gradient(options_.output);
    return {.first = gradient, .second = std::nullopt, .sum = gradient};
  }
  [[nodiscard]] const std::string& name() const noexcept { return options_.norm.options.name; }

  void emit_parameter_gradients(ProgramBuilder& builder, const Incoming& incoming,
                                const NormSumsOperands& sums,
                                const std::optional<NormSumsOperands>& sums_of_added) {
    const Tensor workspace = builder.make(reduction_workspace(extent_, sums_of_added ? 2 : 1));
    std::vector<Tensor> touched{incoming.first, workspace};
    if (incoming.second) touched.insert(touched.end(), {*incoming.second, incoming.sum});
    if (mask_) touched.push_back(*mask_);
    const NormSumsTarget own = norm_sums_target(builder, node_, sums, touched);
    std::optional<NormSumsTarget> added;
    if (sums_of_added) added = norm_sums_target(builder, *added_, *sums_of_added, touched);
    builder.emit("parameter gradients of batch norm " + name(), touched,
                 [incoming, workspace, own, added, mask = mask_, extent = extent_,
                  type = builder.type()](const LaunchContext& context) {
                   const bool joins = incoming.second.has_value();
                   const auto of_added = added ? std::optional(added->at(context)) : std::nullopt;
                   batch_norm_backward_sums(
                       context.stream(), type, extent,
                       {.dy = context.at(incoming.first),
                        .other = joins ? context.at(*incoming.second) : nullptr,
                        .masked = joins ? context.at(incoming.sum) : nullptr},
                       mask ? context.as<std::uint8_t>(*mask) : nullptr, own.at(context),
                       of_added ? &*of_added : nullptr, context.at(workspace));
                 },
                 {node_.parameters[0], node_.parameters[1]});
  }

  Options options_;
  const Node& node_;
  const Node* added_ = nullptr;  ///< the added norm that is computed here too
  Matrix extent_{};
  std::optional<Tensor> mask_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context) {
  const GraphAnalysis& analysis = context.analysis;
  if (const auto pool = analysis.pooled_by[static_cast<std::size_t>(context.id)]) {
    return lower_pooled_norm(op, *pool, context);
  }
  const auto addend = analysis.addend_of(context.graph, context.id);
  const auto is_added = [&](ValueId id) {
    return analysis.added_to[static_cast<std::size_t>(id)].has_value();
  };
  return std::make_unique<NormLowering>(
      NormLowering::Options{.norm = op,
                            .norm_id = context.id,
                            .output = analysis.output_of(context.id),
                            .residual = addend,
                            .relu = analysis.has_relu(context.id),
                            .residual_is_norm = addend && is_added(*addend),
                            .fused_away = is_added(context.id)},
      context);
}

}  // namespace lockstep::gpu
