#include "../convolution.hpp"
#include "../lowering.hpp"
#include "../winograd.hpp"

namespace lockstep::cpu {
namespace {

using Forward = Convolution::Forward;
using BackwardData = Convolution::BackwardData;
using BackwardWeights = Convolution::BackwardWeights;

Convolution make_convolution(const Conv2d& op, const LoweringContext& context,
                             std::int64_t batch_size, DataType activations) {
  const Node& node = context.node();
  return Convolution(
      {.name = op.options.name,
       .source =
           context.graph.nodes()[static_cast<std::size_t>(op.input)].output.with_batch(batch_size),
       .weight = context.graph.parameters()[static_cast<std::size_t>(node.parameters[0])].shape,
       .target = node.output.with_batch(batch_size),
       .stride = op.options.stride,
       .padding = op.options.padding,
       .bias = op.options.bias,
       .activations = activations});
}

class Conv2dLowering final : public Lowering {
 public:
  Conv2dLowering(const Conv2d& op, const LoweringContext& context)
      : op_(op), context_(context), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor value = builder.value(op.inputs[0]);
    forward_ = convolution(builder).forward(builder.forward_kind(), builder.engine());
    const std::string& name = op_.options.name;
    if (const auto plan = winograd(builder, ConvolutionStep::forward)) {
      take_source(builder, value, plan->source_desc());
      const Tensor weight = builder.parameter(parameters_[0], plan->weight_desc(), name);
      const Tensor target = builder.make(plan->target_desc());
      WinogradTensors tensors{.input = source_, .weight = weight, .output = target};
      if (op_.options.bias) {
        tensors.bias = builder.parameter(parameters_[1], forward_.bias_desc(), name);
      }
      emit_winograd(builder, "convolution " + name, *plan, tensors);
      builder.set_value(*op.output, target);
      return;
    }
    take_source(builder, value, forward_.src_desc());
    const Tensor weight = builder.parameter(parameters_[0], forward_.weights_desc(), name);
    const Tensor target = builder.make(forward_.dst_desc());
    ProgramBuilder::Arguments arguments{
        {DNNL_ARG_SRC, source_}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, target}};
    if (op_.options.bias) {
      arguments.emplace_back(DNNL_ARG_BIAS,
                             builder.parameter(parameters_[1], forward_.bias_desc(), name));
    }
    builder.emit("convolution " + name, Forward(forward_), forward_.scratchpad_desc(), arguments);
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    op.gradient.of_parameters ? emit_weight_gradient(builder, op) : emit_data_gradient(builder, op);
  }

 private:
  [[nodiscard]] Convolution convolution(const ProgramBuilder& builder) const {
    return make_convolution(op_, context_, builder.batch_size(), builder.activations());
  }
  /// Empty unless Winograd's algorithm is chosen for the step.
  [[nodiscard]] std::optional<WinogradPlan> winograd(ProgramBuilder& builder,
                                                     ConvolutionStep step) const {
    const auto shape = winograd_shape(context_.graph, op_);
    if (!shape || !builder.state().convolutions.winograd(*shape, step)) return std::nullopt;
    return WinogradPlan({.step = step,
                         .source = forward_.src_desc(),
                         .target = forward_.dst_desc(),
                         .padding = op_.options.padding,
                         .bias = op_.options.bias},
                        builder.state().threads);
  }
  /// As WinogradStep::Operands.
  struct WinogradTensors {
    Tensor input;
    Tensor weight;
    Tensor output;
    std::optional<Tensor> bias = {};
  };
  static std::unique_ptr<Step> winograd_step(ProgramBuilder& builder, const std::string& name,
                                             const WinogradPlan& plan,
                                             const WinogradTensors& tensors) {
    const Tensor scratch = builder.make(plan.scratch_desc());
    for (const Tensor& tensor : {tensors.input, tensors.weight, tensors.output, scratch}) {
      builder.touch(tensor);
    }
    if (tensors.bias) builder.touch(*tensors.bias);
    return std::make_unique<WinogradStep>(
        name, plan,
        WinogradStep::Operands{.input = tensors.input.memory,
                               .weight = tensors.weight.memory,
                               .output = tensors.output.memory,
                               .bias = tensors.bias ? tensors.bias->memory : dnnl::memory(),
                               .scratch = scratch.memory});
  }
  static void emit_winograd(ProgramBuilder& builder, const std::string& name,
                            const WinogradPlan& plan, const WinogradTensors& tensors) {
    builder.emit(winograd_step(builder, name, plan, tensors), {});
  }

  void take_source(ProgramBuilder& builder, const Tensor& value, const Desc& desc) {
    source_ = builder.in_format(value, desc, "input of " + op_.options.name);
    copied_ = source_.buffer != value.buffer;
  }
  /// The input for backward in this format: forward's copy if that fits, else the value.
  [[nodiscard]] Tensor source_in(ProgramBuilder& builder, const StepOp& op,
                                 const Desc& desc) const {
    if (copied_ && source_.desc() == desc) return source_;
    return builder.in_format(builder.value(op.inputs[0]), desc, "input of " + op_.options.name);
  }
  [[nodiscard]] Tensor grad_output(ProgramBuilder& builder, const StepOp& op,
                                   const Desc& desc) const {
    return builder.in_format(builder.value(op.grad_output[0]), desc,
                             "gradient of " + op_.options.name);
  }

  void emit_weight_gradient(ProgramBuilder& builder, const StepOp& op) {
    if (const auto plan = winograd(builder, ConvolutionStep::weight_gradient)) {
      emit_weight_gradient(builder, op, *plan);
      return;
    }
    const Convolution each = convolution(builder);
    const auto pd = each.backward_weights(forward_, builder.engine());
    if (const auto product = each.weight_product(pd, builder.engine())) {
      emit_weight_product(builder, op, *product);
    } else {
      emit_weight_gradient(builder, op, pd);
    }
  }
  void emit_data_gradient(ProgramBuilder& builder, const StepOp& op) {
    if (const auto plan = winograd(builder, ConvolutionStep::data_gradient)) {
      emit_data_gradient(builder, op, *plan);
      return;
    }
    const Convolution each = convolution(builder);
    const auto pd = each.backward_data(forward_, builder.engine());
    if (const auto product = each.data_product(pd, builder.engine())) {
      emit_data_product(builder, op, *product);
    } else {
      emit_data_gradient(builder, op, pd);
    }
  }

  void emit_weight_gradient(ProgramBuilder& builder, const StepOp& op, const WinogradPlan& plan) {
    const std::string& name = op_.options.name;
    const Tensor source = source_in(builder, op, plan.source_desc());
    const Tensor gradient = grad_output(builder, op, plan.target_desc());
    std::vector<ProgramBuilder::ParameterOutput> outputs{
        {.parameter = parameters_[0], .desc = plan.weight_desc()}};
    if (op_.options.bias) {
      outputs.push_back({.parameter = parameters_[1], .desc = forward_.bias_desc()});
    }
    builder.emit_parameter_gradients(name, outputs, [&](const std::vector<Tensor>& tensors) {
      WinogradTensors all{.input = source, .weight = tensors[0], .output = gradient};
      if (op_.options.bias) all.bias = tensors[1];
      return winograd_step(builder, "weight gradient of convolution " + name, plan, all);
    });
  }

  void emit_data_gradient(ProgramBuilder& builder, const StepOp& op, const WinogradPlan& plan) {
    const std::string& name = op_.options.name;
    const Tensor gradient = grad_output(builder, op, plan.target_desc());
    const Tensor weight = builder.parameter(parameters_[0], plan.weight_desc(), name);
    const Tensor target = builder.make(plan.source_desc());
    emit_winograd(builder, "data gradient of convolution " + name, plan,
                  {.input = gradient, .weight = weight, .output = target});
    builder.set_value(*op.grad_inputs[0], target);
  }

  void emit_weight_gradient(ProgramBuilder& builder, const StepOp& op,
                            const BackwardWeights::primitive_desc& pd) {
    const std::string& name = op_.options.name;
    const Tensor source = source_in(builder, op, pd.src_desc());
    const Tensor gradient = grad_output(builder, op, pd.diff_dst_desc());
    std::vector<ProgramBuilder::ParameterOutput> outputs{{.argument = DNNL_ARG_DIFF_WEIGHTS,
                                                          .parameter = parameters_[0],
                                                          .desc = pd.diff_weights_desc()}};
    if (op_.options.bias) {
      outputs.push_back({.argument = DNNL_ARG_DIFF_BIAS,
                         .parameter = parameters_[1],
                         .desc = pd.diff_bias_desc()});
    }
    builder.emit_parameter_gradients(
        "weight gradient of convolution " + name, BackwardWeights(pd), pd.scratchpad_desc(),
        {{DNNL_ARG_SRC, source}, {DNNL_ARG_DIFF_DST, gradient}}, outputs);
  }

  void emit_weight_product(ProgramBuilder& builder, const StepOp& op,
                           const WeightProduct& product) {
    const std::string& name = op_.options.name;
    const Tensor source = source_in(builder, op, product.source);
    const Tensor gradient = grad_output(builder, op, product.gradient);
    const Tensor patches =
        emit_patches(builder, source, product.patches,
                     {.places = dims_of(product.gradient), .window = product.window});
    builder.emit_parameter_gradients("weight gradient of convolution " + name,
                                     dnnl::matmul(product.product),
                                     product.product.scratchpad_desc(),
                                     {{DNNL_ARG_SRC, builder.view(gradient, product.gradient_rows)},
                                      {DNNL_ARG_WEIGHTS, patches}},
                                     {{.argument = DNNL_ARG_DST,
                                       .parameter = parameters_[0],
                                       .desc = product.weight,
                                       .primitives = product.weight_rows}});
  }

  /// Target positions, and the window of the source that each of them reads.
  struct View {
    Dims places;
    Window window;
  };
  static Tensor emit_patches(ProgramBuilder& builder, const Tensor& tensor, const Desc& desc,
                             const View& view) {
    if (view.window.is_point()) return builder.view(tensor, desc);
    Tensor patches = builder.make(desc);
    builder.emit(
        std::make_unique<PatchesStep>(tensor.memory, patches.memory, view.places, view.window),
        {tensor, patches});
    return patches;
  }

  void emit_data_gradient(ProgramBuilder& builder, const StepOp& op,
                          const BackwardData::primitive_desc& pd) {
    const std::string& name = op_.options.name;
    const Tensor gradient = grad_output(builder, op, pd.diff_dst_desc());
    const Tensor weight = builder.parameter(parameters_[0], pd.weights_desc(), name);
    const Tensor target = builder.make(pd.diff_src_desc());
    builder.emit(
        "data gradient of convolution " + name, BackwardData(pd), pd.scratchpad_desc(),
        {{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_SRC, target}});
    builder.set_value(*op.grad_inputs[0], target);
  }

  void emit_data_product(ProgramBuilder& builder, const StepOp& op, const DataProduct& product) {
    const std::string& name = op_.options.name;
    const Tensor gradient = grad_output(builder, op, product.gradient);
    const Tensor weight = builder.parameter(parameters_[0], product.weight, name);
    const bool skips = product.window.stride > 1;
    const Tensor patches =
        skips
            ? builder.view(gradient, product.patches)
            : emit_patches(builder, gradient, product.patches,
                           {.places = dims_of(product.source), .window = product.window.rotated()});
    const Tensor result = builder.make(skips ? product.source_rows : product.source);
    builder.emit("data gradient of convolution " + name, dnnl::matmul(product.product),
                 product.product.scratchpad_desc(),
                 {{DNNL_ARG_SRC, patches},
                  {DNNL_ARG_WEIGHTS, emit_turned(builder, weight, product)},
                  {DNNL_ARG_DST, builder.view(result, product.source_rows)}});
    Tensor target = result;
    if (skips) {
      target = builder.make(product.source);
      builder.emit(std::make_unique<ScatterStep>(result.memory, target.memory,
                                                 dims_of(product.gradient), product.window),
                   {result, target});
    }
    builder.set_value(*op.grad_inputs[0], target);
  }

  static Tensor emit_turned(ProgramBuilder& builder, const Tensor& weight,
                            const DataProduct& product) {
    if (product.window.height == 1) return builder.view(weight, product.weight_rows);
    Tensor rotated = builder.make(product.weight_rows);
    builder.emit(std::make_unique<RotateStep>(weight.memory, rotated.memory), {weight, rotated});
    return rotated;
  }

  Conv2d op_;
  LoweringContext context_;
  std::vector<ParameterId> parameters_;
  Forward::primitive_desc forward_;
  Tensor source_;
  bool copied_ = false;  ///< the source is a copy of the input
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Conv2d& op, const LoweringContext& context) {
  return std::make_unique<Conv2dLowering>(op, context);
}

Desc weight_format(const Conv2d& op, const LoweringContext& context,
                   const WeightFormatOptions& options) {
  return make_convolution(op, context, nominal_batch, options.activations)
      .weight_format(options.engine);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Conv2d>;
