#include "lowering.hpp"

namespace lockstep::cpu {
namespace {

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;
constexpr auto direct = dnnl::algorithm::convolution_direct;

/// Descriptors that leave all formats to oneDNN.
class Convolution final {
 public:
  struct Types {
    DataType activations;
    std::int64_t batch_size;
  };
  Convolution(const Conv2d& op, const LoweringContext& context, const Types& types)
      : name_(op.options.name),
        source_(
            any_layout(context.graph.nodes()[static_cast<std::size_t>(op.input)].output.with_batch(
                           types.batch_size),
                       types.activations)),
        target_(any_layout(context.node().output.with_batch(types.batch_size), types.activations)),
        stride_{op.options.stride, op.options.stride},
        padding_{op.options.padding, op.options.padding} {
    const Shape& weight =
        context.graph.parameters()[static_cast<std::size_t>(context.node().parameters[0])].shape;
    weight_ = any_layout(weight, types.activations);
    weight_gradient_ = any_layout(weight, DataType::f32);
    if (op.options.bias) bias_ = f32(Dims{op.options.out_channels}, Tag::x);
  }

  [[nodiscard]] Forward::primitive_desc forward(dnnl::prop_kind kind,
                                                const dnnl::engine& engine) const {
    return checked("the forward convolution " + name_, [&] {
      const Forward::desc desc(kind, direct, source_, weight_, bias_, target_, stride_, padding_,
                               padding_);
      return Forward::primitive_desc(desc, ProgramBuilder::attributes(), engine);
    });
  }
  [[nodiscard]] BackwardData::primitive_desc backward_data(const Forward::primitive_desc& hint,
                                                           const dnnl::engine& engine) const {
    return checked("the data gradient of convolution " + name_, [&] {
      const BackwardData::desc desc(direct, source_, weight_, target_, stride_, padding_, padding_);
      return BackwardData::primitive_desc(desc, ProgramBuilder::attributes(), engine, hint);
    });
  }
  [[nodiscard]] BackwardWeights::primitive_desc backward_weights(
      const Forward::primitive_desc& hint, const dnnl::engine& engine) const {
    return checked("the weight gradient of convolution " + name_, [&] {
      const BackwardWeights::desc desc(direct, source_, weight_gradient_, bias_, target_, stride_,
                                       padding_, padding_);
      return BackwardWeights::primitive_desc(desc, ProgramBuilder::attributes(), engine, hint);
    });
  }

 private:
  std::string name_;
  Desc source_;
  Desc target_;
  Desc weight_;
  Desc weight_gradient_;
  Desc bias_;
  Dims stride_;
  Dims padding_;
};

class Conv2dLowering final : public Lowering {
 public:
  Conv2dLowering(const Conv2d& op, const LoweringContext& context)
      : op_(op), context_(context), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder) override {
    const Convolution convolution(
        op_, context_, {.activations = builder.activations(), .batch_size = builder.batch_size()});
    forward_ = convolution.forward(builder.forward_kind(), builder.engine());
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
    const Convolution convolution(
        op_, context_, {.activations = builder.activations(), .batch_size = builder.batch_size()});
    emit_weight_gradient(builder, convolution.backward_weights(forward_, builder.engine()));
    if (builder.needs_gradient(op_.input)) {
      emit_data_gradient(builder, convolution.backward_data(forward_, builder.engine()));
    }
  }

 private:
  void emit_weight_gradient(ProgramBuilder& builder, const BackwardWeights::primitive_desc& pd) {
    const std::string& name = op_.options.name;
    // From the reordered input where forward had made one in the right format.
    const Tensor& value = builder.value(op_.input);
    const Tensor& nearest = value.desc() == pd.src_desc() ? value : source_;
    const Tensor source = builder.in_format(nearest, pd.src_desc(), "input of " + name);
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
  const Convolution convolution(op, context,
                                {.activations = options.activations, .batch_size = nominal_batch});
  const dnnl::engine& engine = options.engine;
  const auto hint = convolution.forward(dnnl::prop_kind::forward_training, engine);
  return convolution.backward_weights(hint, engine).diff_weights_desc();
}

}  // namespace lockstep::cpu
