#include "lowering.hpp"
#include "rank_sums.hpp"

#include <memory>
#include <optional>

namespace lockstep::cuda {
namespace {

/// A batch norm with the addition and the ReLU behind it, where they are fused.
class NormLowering final : public Lowering {
 public:
  struct Options {
    BatchNorm norm;
    ValueId norm_id;
    ValueId output;  ///< the value that is computed
    std::optional<ValueId> residual;
    bool relu = false;
  };
  NormLowering(Options options, const LoweringContext& context)
      : options_(std::move(options)), node_(context.node(options_.norm_id)) {}

  void forward(ProgramBuilder& builder) override {
    extent_ = builder.extent(options_.norm_id).matrix();
    const Tensor x = builder.value(options_.norm.input);
    if (builder.training() && builder.state().sum_over_ranks) {
      ranks_ = std::make_shared<RankSums>(*builder.state().device, builder.state().sum_over_ranks,
                                          extent_.rows, extent_.padded);
    }
    if (builder.training()) emit_statistics(builder, x);
    const Tensor y =
        builder.overwritable(options_.norm.input) ? x : builder.make_like(options_.norm_id);
    const NormPlace norm = norm_place(builder);
    std::vector<Tensor> touched{x, y, norm.weight.tensor, norm.bias.tensor};
    const auto residual =
        options_.residual ? std::optional(builder.value(*options_.residual)) : std::nullopt;
    if (residual) touched.push_back(*residual);
    if (options_.relu && builder.training()) {
      const auto values = static_cast<std::size_t>(extent_.rows * extent_.padded);
      mask_ = builder.make((values + 7) / 8);
      touched.push_back(*mask_);
    }
    builder.emit("batch norm " + name(), touched,
                 [x, y, mask = mask_, relu = options_.relu, norm, extent = extent_, residual,
                  type = builder.type()](const Frame& f) {
                   batch_norm_apply(f.stream(), type, extent, f.at(x), norm.at(f),
                                    {.residual = residual ? f.at(*residual) : nullptr,
                                     .relu = relu,
                                     .mask = mask ? f.as<std::uint8_t>(*mask) : nullptr},
                                    f.at(y));
                 });
    builder.set_value(options_.output, y);
  }

  void backward(ProgramBuilder& builder) override {
    const Tensor x = builder.value(options_.norm.input);
    const auto incoming = builder.take_gradient(options_.output);
    const Sums sums = emit_parameter_gradients(builder, x, incoming);

    const Tensor dy = incoming.sum;
    // A sum that was made here is behind the ReLU already.
    const std::optional<Tensor> mask = incoming.second ? std::nullopt : mask_;
    const bool has_residual = options_.residual && builder.needs_gradient(*options_.residual);
    const bool exclusive = builder.gradient_is_exclusive(options_.output);
    // What was added has the gradient behind the ReLU; without one it is dy itself.
    std::optional<Tensor> dz;
    if (has_residual && mask) dz = exclusive ? dy : builder.make_like(options_.norm_id);
    const bool in_place = exclusive && !has_residual;
    const Tensor dx = in_place ? dy : builder.make_like(options_.norm.input);
    const NormPlace norm = norm_place(builder);
    std::vector<Tensor> touched{
        x, dy, dx, sums.weight, sums.bias, norm.weight.tensor, norm.bias.tensor};
    if (mask) touched.push_back(*mask);
    if (dz) touched.push_back(*dz);
    builder.emit("gradient of batch norm " + name(), touched,
                 [x, dy, dx, dz, sums, mask, norm, extent = extent_, ranks = ranks_,
                  type = builder.type()](const Frame& f) {
                   if (ranks) {
                     ranks->combine_gradients(f.as<float>(sums.weight), f.as<float>(sums.bias));
                   }
                   const double elements =
                       ranks ? ranks->elements() : static_cast<double>(extent.rows);
                   batch_norm_backward_apply(f.stream(), type, extent, f.at(x), f.at(dy),
                                             mask ? f.as<std::uint8_t>(*mask) : nullptr, norm.at(f),
                                             f.as<float>(sums.weight), f.as<float>(sums.bias),
                                             elements, f.at(dx), dz ? f.at(*dz) : nullptr);
                 });
    if (has_residual) {
      // No step reads a sum that was made here once dx is there.
      const bool own = dz || incoming.second;
      builder.contribute(
          *options_.residual, dz.value_or(dy),
          own ? ProgramBuilder::Ownership::exclusive : ProgramBuilder::Ownership::shared);
    }
    builder.contribute(options_.norm.input, dx, ProgramBuilder::Ownership::exclusive);
  }

 private:
  [[nodiscard]] const std::string& name() const noexcept { return options_.norm.options.name; }

  /// The norm of a pass, in which its parameters may be elsewhere than in another.
  struct NormPlace {
    const float* mean;
    const float* variance;
    Place weight;
    Place bias;
    float eps;
    [[nodiscard]] Normalization at(const Frame& f) const {
      return {.mean = mean,
              .variance = variance,
              .weight = f.as<const float>(weight),
              .bias = f.as<const float>(bias),
              .eps = eps};
    }
  };
  [[nodiscard]] NormPlace norm_place(ProgramBuilder& builder) const {
    return {.mean = builder.statistics().of(node_.statistics[0]),
            .variance = builder.statistics().of(node_.statistics[1]),
            .weight = builder.parameter(node_.parameters[0]),
            .bias = builder.parameter(node_.parameters[1]),
            .eps = static_cast<float>(options_.norm.options.eps)};
  }

  void emit_statistics(ProgramBuilder& builder, Tensor x) {
    const Tensor workspace = builder.make(reduction_workspace(extent_));
    builder.emit("statistics of " + name(), {x, workspace},
                 [x, workspace, extent = extent_, type = builder.type(), ranks = ranks_,
                  &block = builder.statistics(), id = node_.statistics[1],
                  mean = builder.statistics().of(node_.statistics[0]),
                  variance = builder.statistics().of(node_.statistics[1])](const Frame& f) {
                   batch_norm_statistics(f.stream(), type, extent, f.at(x), mean, variance,
                                         f.at(workspace));
                   if (!ranks) return;
                   ranks->combine_statistics(mean, variance);
                   block.set_elements(id, ranks->elements());
                 });
  }

  struct Sums {
    Tensor weight;
    Tensor bias;
  };
  /// The sums over this batch alone are what the data's gradient needs, so they stay aside when
  /// gradients accumulate.
  Sums emit_parameter_gradients(ProgramBuilder& builder, Tensor x,
                                const ProgramBuilder::Addends& incoming) {
    const auto padded = static_cast<std::size_t>(extent_.padded);
    const Tensor workspace = builder.make(reduction_workspace(extent_));
    const Sums sums{.weight = builder.make(padded * sizeof(float)),
                    .bias = builder.make(padded * sizeof(float))};
    const NormPlace norm = norm_place(builder);
    const Place weight = builder.gradient_of(node_.parameters[0]);
    const Place bias = builder.gradient_of(node_.parameters[1]);
    const auto [dy, other, masked] = incoming;
    std::vector<Tensor> touched{x,
                                dy,
                                masked,
                                workspace,
                                sums.weight,
                                sums.bias,
                                norm.weight.tensor,
                                norm.bias.tensor,
                                weight.tensor,
                                bias.tensor};
    if (mask_) touched.push_back(*mask_);
    if (other) touched.push_back(*other);
    builder.emit(
        "parameter gradients of batch norm " + name(), touched,
        [x, dy = dy, other = other, masked = masked, workspace, sums, weight, bias, mask = mask_,
         norm, extent = extent_, type = builder.type()](const Frame& f) {
          batch_norm_backward_sums(
              f.stream(), type, extent, f.at(x),
              {.dy = f.at(dy),
               .other = other ? f.at(*other) : nullptr,
               .masked = other ? f.at(masked) : nullptr},
              mask ? f.as<std::uint8_t>(*mask) : nullptr, norm.at(f), f.as<float>(sums.weight),
              f.as<float>(sums.bias),
              {.weight = f.as<float>(weight), .bias = f.as<float>(bias), .adds = f.accumulate},
              f.at(workspace));
        },
        {node_.parameters[0], node_.parameters[1]});
    return sums;
  }

  Options options_;
  const Node& node_;
  Matrix extent_{};
  std::optional<Tensor> mask_;
  std::shared_ptr<RankSums> ranks_;  // where statistics are taken over all ranks
};

}  // namespace

std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context) {
  const GraphAnalysis& analysis = context.state.analysis;
  return std::make_unique<NormLowering>(
      NormLowering::Options{.norm = op,
                            .norm_id = context.id,
                            .output = analysis.output_of(context.id),
                            .residual = analysis.addend_of(context.state.graph, context.id),
                            .relu = analysis.has_relu(context.id)},
      context);
}

}  // namespace lockstep::cuda
