#include "lowering.hpp"
#include "synchronised_norm.hpp"

namespace lockstep::cpu {
namespace {

class SynchronisedBatchNormLowering final : public Lowering {
 public:
  SynchronisedBatchNormLowering(const BatchNorm& op, const LoweringContext& context)
      : op_(op),
        context_(context),
        output_(context.analysis.output_of(context.id)),
        scale_(context.node().parameters[0]),
        shift_(context.node().parameters[1]) {}

  void forward(ProgramBuilder& builder) override {
    const std::string& name = op_.options.name;
    const Tensor value = builder.value(op_.input);
    source_ =
        ChannelRows::fits(value.desc())
            ? value
            : builder.in_format(value, plain(builder.batch_shape(op_.input), builder.activations()),
                                "input of " + name);
    const Tensor target = builder.make(source_.desc());
    const EngineState& state = builder.state();
    norm_ = std::make_shared<SynchronisedNorm>(
        source_.desc(),
        SynchronisedNorm::Options{.eps = op_.options.eps,
                                  .relu = fused(),
                                  .mean = context_.node().statistics[0],
                                  .variance = context_.node().statistics[1],
                                  .threads = state.threads},
        builder.statistics(), state.sum_over_ranks);
    const Desc channels = f32(Dims{source_.desc().dims()[1]}, Tag::x);
    const Tensor scale = builder.parameter(scale_, channels, name);
    const Tensor shift = builder.parameter(shift_, channels, name);
    builder.emit(std::make_unique<SynchronisedNormForward>(
                     "synchronised batch norm", norm_,
                     SynchronisedNorm::Forward{.source = source_.memory,
                                               .scale = scale.memory,
                                               .shift = shift.memory,
                                               .target = target.memory}),
                 {source_, scale, shift, target});
    builder.set_value(output_, target, [this](ProgramBuilder& again) { return emit_again(again); });
  }

  void backward(ProgramBuilder& builder) override {
    const std::string& name = op_.options.name;
    const Tensor source = source_of(builder);
    const Tensor gradient =
        builder.in_format(builder.gradient(output_), source.desc(), "gradient of " + name);
    const Tensor target = builder.make(source_.desc());
    const Desc channels = f32(Dims{source_.desc().dims()[1]}, Tag::x);
    const Tensor scale = builder.parameter(scale_, channels, name);
    const Tensor output = fused() ? builder.value(output_) : source;
    builder.emit_parameter_gradients(std::make_unique<SynchronisedNormBackward>(
                                         "gradient of synchronised batch norm", norm_,
                                         SynchronisedNorm::Backward{.source = source.memory,
                                                                    .scale = scale.memory,
                                                                    .output = output.memory,
                                                                    .gradient = gradient.memory,
                                                                    .target = target.memory}),
                                     {source, scale, output, gradient, target},
                                     {{.parameter = scale_, .values = norm_->scale_gradient()},
                                      {.parameter = shift_, .values = norm_->shift_gradient()}});
    builder.contribute(op_.input, target, ProgramBuilder::Ownership::exclusive, name);
  }

 private:
  [[nodiscard]] Tensor source_of(ProgramBuilder& builder) const {
    return builder.input_again(op_.input, source_, source_.desc(), op_.options.name);
  }
  [[nodiscard]] Tensor emit_again(ProgramBuilder& builder) const {
    const Tensor source = source_of(builder);
    Tensor target = builder.make(source.desc());
    builder.emit(
        std::make_unique<SynchronisedNormAgain>(
            "synchronised batch norm again", norm_,
            SynchronisedNorm::Forward{
                .source = source.memory, .scale = {}, .shift = {}, .target = target.memory}),
        {source, target});
    return target;
  }
  [[nodiscard]] bool fused() const noexcept { return output_ != context_.id; }

  BatchNorm op_;
  LoweringContext context_;
  ValueId output_;
  ParameterId scale_;
  ParameterId shift_;
  std::shared_ptr<SynchronisedNorm> norm_;
  Tensor source_;
};

}  // namespace

std::unique_ptr<Lowering> lower_synchronised(const BatchNorm& op, const LoweringContext& context) {
  return std::make_unique<SynchronisedBatchNormLowering>(op, context);
}

}  // namespace lockstep::cpu
