#include "lowering.hpp"

#include <string_view>

namespace lockstep::cpu {
namespace {

using Forward = dnnl::batch_normalization_forward;
using Backward = dnnl::batch_normalization_backward;
using Flags = dnnl::normalization_flags;

/// With the ReLU behind it, if one is fused.
class BatchNormLowering final : public Lowering {
 public:
  BatchNormLowering(const BatchNorm& op, const LoweringContext& context)
      : op_(op),
        context_(context),
        output_(context.analysis.output_of(context.id)),
        scale_(context.node().parameters[0]),
        shift_(context.node().parameters[1]) {}

  void forward(ProgramBuilder& builder) override {
    const std::string& name = op_.options.name;
    auto pd = normalize(builder, builder.format(op_.input));
    if (is_slow(pd)) {
      const Desc& given = builder.format(op_.input);
      pd = normalize(builder, Desc(given.dims(), given.data_type(), Tag::nChw16c));
    }
    source_ = builder.in_format(builder.value(op_.input), pd.src_desc(), "input of " + name);
    const Tensor target = builder.overwritable(op_.input) ? source_ : builder.make(pd.dst_desc());
    const Desc channels = f32(Dims{source_.desc().dims()[1]}, Tag::x);
    // Written in training, read in inference.
    mean_ = builder.statistic(context_.node().statistics[0], channels);
    variance_ = builder.statistic(context_.node().statistics[1], channels);
    scale_values_ = builder.parameter_of(output_, scale_, channels, name);
    shift_values_ = builder.parameter_of(output_, shift_, channels, name);
    ProgramBuilder::Arguments arguments{
        {DNNL_ARG_SRC, source_}, {DNNL_ARG_SCALE, scale_values_}, {DNNL_ARG_SHIFT, shift_values_},
        {DNNL_ARG_MEAN, mean_},  {DNNL_ARG_VARIANCE, variance_},  {DNNL_ARG_DST, target}};
    if (builder.training() && fused()) {
      workspace_ = builder.make(pd.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
    }
    builder.emit("batch norm " + name, Forward(pd), pd.scratchpad_desc(), arguments);
    builder.set_value(output_, target, [this](ProgramBuilder& again) { return emit_again(again); });
    forward_ = pd;
  }

  void backward(ProgramBuilder& builder) override {
    const std::string& name = op_.options.name;
    const Tensor source = source_again(builder);
    const auto pd = checked("the gradient of batch norm " + name, [&] {
      const Backward::desc desc(dnnl::prop_kind::backward, source.desc(), source.desc(), eps(),
                                flags(true));
      return Backward::primitive_desc(desc, ProgramBuilder::attributes(), builder.engine(),
                                      forward_);
    });
    const Tensor gradient =
        builder.in_format(builder.gradient(output_), source.desc(), "gradient of " + name);
    const Tensor target = builder.make(pd.diff_src_desc());
    const Desc channels = f32(Dims{source.desc().dims()[1]}, Tag::x);
    ProgramBuilder::Arguments arguments{{DNNL_ARG_SRC, source},
                                        {DNNL_ARG_MEAN, mean_},
                                        {DNNL_ARG_VARIANCE, variance_},
                                        {DNNL_ARG_SCALE, builder.parameter(scale_, channels, name)},
                                        {DNNL_ARG_SHIFT, builder.parameter(shift_, channels, name)},
                                        {DNNL_ARG_DIFF_DST, gradient},
                                        {DNNL_ARG_DIFF_SRC, target}};
    if (fused()) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace_);
    builder.emit_parameter_gradients(
        "gradient of batch norm " + name, Backward(pd), pd.scratchpad_desc(), arguments,
        {{.argument = DNNL_ARG_DIFF_SCALE, .parameter = scale_, .desc = channels},
         {.argument = DNNL_ARG_DIFF_SHIFT, .parameter = shift_, .desc = channels}});
    builder.contribute(op_.input, target, ProgramBuilder::Ownership::exclusive, name);
  }

 private:
  /// From the statistics that forward found.
  [[nodiscard]] Tensor emit_again(ProgramBuilder& builder) const {
    const Tensor source = source_again(builder);
    const std::string name = "batch norm again " + op_.options.name;
    const auto pd = checked(name, [&] {
      const Forward::desc desc(dnnl::prop_kind::forward_inference, source.desc(), eps(),
                               flags(false));
      return Forward::primitive_desc(desc, ProgramBuilder::attributes(), builder.engine());
    });
    Tensor target = builder.make(pd.dst_desc());
    builder.emit(name, Forward(pd), pd.scratchpad_desc(),
                 {{DNNL_ARG_SRC, source},
                  {DNNL_ARG_SCALE, scale_values_},
                  {DNNL_ARG_SHIFT, shift_values_},
                  {DNNL_ARG_MEAN, mean_},
                  {DNNL_ARG_VARIANCE, variance_},
                  {DNNL_ARG_DST, target}});
    return target;
  }
  [[nodiscard]] Forward::primitive_desc normalize(ProgramBuilder& builder,
                                                  const Desc& source) const {
    return checked("the batch norm " + op_.options.name, [&] {
      const Forward::desc desc(builder.forward_kind(), source, eps(), flags(builder.training()));
      return Forward::primitive_desc(desc, ProgramBuilder::attributes(), builder.engine());
    });
  }
  /// In 16 bits oneDNN's compiled norms take channels that lie together by sixteen alone; for
  /// others there is one that takes a hundred times as long, and one for blocks, padded.
  [[nodiscard]] static bool is_slow(const Forward::primitive_desc& norm) {
    return norm.src_desc().data_type() != DataType::f32 &&
           std::string_view(norm.impl_info_str()).starts_with("nspc");
  }
  [[nodiscard]] Tensor source_again(ProgramBuilder& builder) const {
    return builder.input_again(op_.input, source_, source_.desc(), op_.options.name);
  }
  [[nodiscard]] bool fused() const noexcept { return output_ != context_.id; }
  [[nodiscard]] float eps() const noexcept { return static_cast<float>(op_.options.eps); }
  [[nodiscard]] Flags flags(bool training) const noexcept {
    Flags result = Flags::use_scale | Flags::use_shift;
    if (fused()) result |= Flags::fuse_norm_relu;
    if (!training) result |= Flags::use_global_stats;
    return result;
  }

  BatchNorm op_;
  LoweringContext context_;
  ValueId output_;
  ParameterId scale_;
  ParameterId shift_;
  Forward::primitive_desc forward_;
  Tensor source_;
  Tensor scale_values_;
  Tensor shift_values_;
  Tensor mean_;
  Tensor variance_;
  Tensor workspace_;
};

}  // namespace

std::unique_ptr<Lowering> lower(const BatchNorm& op, const LoweringContext& context) {
  if (context.synchronised) return lower_synchronised(op, context);
  return std::make_unique<BatchNormLowering>(op, context);
}

}  // namespace lockstep::cpu
