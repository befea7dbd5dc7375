#include "../linear_of_pixels.hpp"
#include "../linear_step.hpp"

#include <memory>
#include <optional>
#include <string_view>

namespace lockstep::cpu {
namespace {

using Forward = dnnl::inner_product_forward;
using BackwardData = dnnl::inner_product_backward_data;
using BackwardWeights = dnnl::inner_product_backward_weights;

/// Source and target are plain (N, F); oneDNN chooses only the weight's format. Logits are always
/// fp32, because the loss subtracts them.
class InnerProduct final {
 public:
  struct Types {
    DataType activations;
    std::int64_t batch_size;
  };
  InnerProduct(const Linear& op, const LoweringContext& context, const Types& types)
      : name_(op.options.name),
        source_(plain(context.graph.nodes()[static_cast<std::size_t>(op.input)].output.with_batch(
                          types.batch_size),
                      types.activations)),
        target_(plain(context.node().output.with_batch(types.batch_size),
                      makes_logits(context) ? DataType::f32 : types.activations)),
        target_gradient_(
            plain(context.node().output.with_batch(types.batch_size), types.activations)),
        bias_(f32(Dims{op.options.out_features}, Tag::x)) {
    const Shape& weight =
        context.graph.parameters()[static_cast<std::size_t>(context.node().parameters[0])].shape;
    weight_ = any_layout(weight, types.activations);
    plain_weight_ = f32(dims_of(weight), Tag::ba);
    weight_gradient_ = any_layout(weight, DataType::f32);
  }

  [[nodiscard]] const Desc& source() const noexcept { return source_; }
  [[nodiscard]] const Desc& target() const noexcept { return target_; }
  [[nodiscard]] const Desc& target_gradient() const noexcept { return target_gradient_; }
  [[nodiscard]] const Desc& bias() const noexcept { return bias_; }
  /// (F, C), row-major.
  [[nodiscard]] const Desc& plain_weight() const noexcept { return plain_weight_; }
  [[nodiscard]] Forward::primitive_desc forward(dnnl::prop_kind kind,
                                                const dnnl::engine& engine) const {
    return checked("the inner product " + name_, [&] {
      return primitive_desc<Forward>(engine, ProgramBuilder::attributes(), kind, source_, weight_,
                                     bias_, target_);
    });
  }
  [[nodiscard]] BackwardData::primitive_desc backward_data(const Forward::primitive_desc& hint,
                                                           const dnnl::engine& engine) const {
    return checked("the data gradient of " + name_, [&] {
      const auto writes = [this](const auto& primitive) { return !writes_nothing(primitive); };
      auto chosen = first_backward_primitive_desc<BackwardData>(
          writes, engine, ProgramBuilder::attributes(), hint, source_, weight_, target_gradient_);
      if (!chosen) {
        fail(ExitStatus::internal, "oneDNN has no data gradient of {} that writes all values",
             name_);
      }
      return *chosen;
    });
  }
  [[nodiscard]] BackwardWeights::primitive_desc backward_weights(
      const Forward::primitive_desc& hint, const dnnl::engine& engine) const {
    return checked("the weight gradient of " + name_, [&] {
      return backward_primitive_desc<BackwardWeights>(engine, ProgramBuilder::attributes(), hint,
                                                      source_, weight_gradient_, bias_,
                                                      target_gradient_);
    });
  }

 private:
  static bool makes_logits(const LoweringContext& context) {
    return context.graph.logits() == context.id;
  }

  /// oneDNN 2.6 writes no result if it uses AMX, divides the sums among threads and there are at
  /// most 16 features (observed with 520 and more outputs).
  [[nodiscard]] bool writes_nothing(const BackwardData::primitive_desc& primitive) const {
    constexpr std::int64_t most_features = 16;
    return dims_of(source_)[1] <= most_features &&
           std::string_view(primitive.impl_info_str()).find("amx") != std::string_view::npos;
  }

  std::string name_;
  Desc source_;
  Desc target_;
  Desc target_gradient_;
  Desc bias_;
  Desc weight_;
  Desc plain_weight_;
  Desc weight_gradient_;
};

class LinearLowering final : public Lowering {
 public:
  LinearLowering(const Linear& op, const LoweringContext& context)
      : op_(op), context_(context), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const InnerProduct product(
        op_, context_, {.activations = builder.activations(), .batch_size = builder.batch_size()});
    const std::string& name = op_.options.name;
    const Tensor value = builder.value(op.inputs[0]);
    source_ = builder.in_format(value, product.source(), "input of " + name);
    copied_ = source_.buffer != value.buffer;
    const Tensor bias = builder.parameter(parameters_[1], product.bias(), name);
    const Tensor target = builder.make(product.target());
    builder.set_value(*op.output, target);
    if (!builder.training() && builder.activations() == DataType::f32) {
      const Tensor weight = builder.parameter(parameters_[0], product.plain_weight(), name);
      return emit_linear(builder, "inner product " + name,
                         {.source = source_, .weight = weight, .bias = bias, .target = target});
    }
    forward_ = product.forward(builder.forward_kind(), builder.engine());
    const Tensor weight = builder.parameter(parameters_[0], forward_.weights_desc(), name);
    builder.emit("inner product " + name, Forward(forward_), forward_.scratchpad_desc(),
                 {{DNNL_ARG_SRC, source_},
                  {DNNL_ARG_WEIGHTS, weight},
                  {DNNL_ARG_BIAS, bias},
                  {DNNL_ARG_DST, target}});
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const InnerProduct product(
        op_, context_, {.activations = builder.activations(), .batch_size = builder.batch_size()});
    const std::string& name = op_.options.name;
    if (!gradient_) {
      gradient_ = builder.in_format(builder.value(op.grad_output[0]), product.target_gradient(),
                                    "gradient of " + name);
    }
    if (op.gradient.of_parameters) return emit_weight_gradient(builder, op, product);
    const auto data_pd = product.backward_data(forward_, builder.engine());
    const Tensor weight = builder.parameter(parameters_[0], data_pd.weights_desc(), name);
    const Tensor target = builder.make(product.source());
    builder.emit(
        "data gradient of inner product " + name, BackwardData(data_pd), data_pd.scratchpad_desc(),
        {{DNNL_ARG_DIFF_DST, *gradient_}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_SRC, target}});
    builder.set_value(*op.grad_inputs[0], target);
  }

 private:
  void emit_weight_gradient(ProgramBuilder& builder, const StepOp& op,
                            const InnerProduct& product) {
    const std::string& name = op_.options.name;
    const auto weights_pd = product.backward_weights(forward_, builder.engine());
    const Tensor source = copied_ ? source_
                                  : builder.in_format(builder.value(op.inputs[0]), product.source(),
                                                      "input of " + name);
    builder.emit_parameter_gradients("weight gradient of inner product " + name,
                                     BackwardWeights(weights_pd), weights_pd.scratchpad_desc(),
                                     {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_DST, *gradient_}},
                                     {{.argument = DNNL_ARG_DIFF_WEIGHTS,
                                       .parameter = parameters_[0],
                                       .desc = weights_pd.diff_weights_desc()},
                                      {.argument = DNNL_ARG_DIFF_BIAS,
                                       .parameter = parameters_[1],
                                       .desc = weights_pd.diff_bias_desc()}});
  }

  Linear op_;
  LoweringContext context_;
  std::vector<ParameterId> parameters_;
  Forward::primitive_desc forward_;
  Tensor source_;
  bool copied_ = false;             ///< the source is a copy of the input
  std::optional<Tensor> gradient_;  ///< of the output, as both parts of backward read it
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Linear& op, const LoweringContext& context) {
  if (context.node().output.rank() > 1) return lower_linear_of_pixels(op, context);
  return std::make_unique<LinearLowering>(op, context);
}

Desc weight_format(const Linear& op, const LoweringContext& context,
                   const WeightFormatOptions& options) {
  if (context.node().output.rank() > 1) {
    return plain({op.options.out_features, context.node(op.input).output[0]});
  }
  const InnerProduct product(op, context,
                             {.activations = options.activations, .batch_size = nominal_batch});
  const dnnl::engine& engine = options.engine;
  const auto hint = product.forward(dnnl::prop_kind::forward_training, engine);
  return product.backward_weights(hint, engine).diff_weights_desc();
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Linear>;
