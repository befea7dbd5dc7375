#include "convolution.hpp"
#include "lowering.hpp"

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

  void forward(ProgramBuilder& builder) override {
    forward_ = convolution(builder).forward(
        builder.convolution_kind(), chosen(builder, ConvolutionStep::forward), builder.engine());
    const std::string& name = op_.options.name;
    source_ = builder.in_format(builder.value(op_.input), forward_.src_desc(), "input of " + name);
    const Tensor weight = builder.parameter(parameters_[0], forward_.weights_desc(), name);
    const Tensor target = builder.make(forward_.dst_desc());
    ProgramBuilder::Arguments arguments{
        {DNNL_ARG_SRC, source_}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, target}};
    if (op_.options.bias) {
      arguments.emplace_back(DNNL_ARG_BIAS,
                             builder.parameter(parameters_[1], forward_.bias_desc(), name));
    }
    builder.emit("convolution " + name, Forward(forward_), forward_.scratchpad_desc(), arguments);
    builder.set_value(context_.id, target);
  }

  void backward(ProgramBuilder& builder) override {
    const Convolution each = convolution(builder);
    emit_weight_gradient(
        builder, each.backward_weights(forward_, chosen(builder, ConvolutionStep::weight_gradient),
                                       builder.engine()));
    if (builder.needs_gradient(op_.input)) {
      emit_data_gradient(
          builder, each.backward_data(forward_, chosen(builder, ConvolutionStep::data_gradient),
                                      builder.engine()));
    }
  }

 private:
  [[nodiscard]] Convolution convolution(const ProgramBuilder& builder) const {
    return make_convolution(op_, context_, builder.batch_size(), builder.activations());
  }
  /// Whether the step is to be computed by Winograd's algorithm.
  [[nodiscard]] bool chosen(ProgramBuilder& builder, ConvolutionStep step) const {
    const auto shape = winograd_shape(context_.graph, op_);
    return shape && builder.state().convolutions.winograd(*shape, step);
  }

  void emit_weight_gradient(ProgramBuilder& builder, const BackwardWeights::primitive_desc& pd) {
    const std::string& name = op_.options.name;
    const Tensor source = builder.input_again(op_.input, source_, pd.src_desc(), name);
    const Tensor gradient =
        builder.in_format(builder.gradient(context_.id), pd.diff_dst_desc(), "gradient of " + name);
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

  void emit_data_gradient(ProgramBuilder& builder, const BackwardData::primitive_desc& pd) {
    const std::string& name = op_.options.name;
    const Tensor gradient =
        builder.in_format(builder.gradient(context_.id), pd.diff_dst_desc(), "gradient of " + name);
    const Tensor weight = builder.parameter(parameters_[0], pd.weights_desc(), name);
    const Tensor target = builder.make(pd.diff_src_desc());
    builder.emit(
        "data gradient of convolution " + name, BackwardData(pd), pd.scratchpad_desc(),
        {{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_SRC, target}});
    builder.contribute(op_.input, target, ProgramBuilder::Ownership::exclusive, name);
  }

  Conv2d op_;
  LoweringContext context_;
  std::vector<ParameterId> parameters_;
  Forward::primitive_desc forward_;
  Tensor source_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const Conv2d& op, const LoweringContext& context) {
  return std::make_unique<Conv2dLowering>(op, context);
}

Desc weight_format(const Conv2d& op, const LoweringContext& context,
                   const WeightFormatOptions& options) {
  return make_convolution(op, context, nominal_batch, options.activations)
      .weight_format(options.engine);
}

}  // namespace lockstep::cpu
