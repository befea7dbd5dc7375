#include "../lowering.hpp"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <string>

namespace lockstep::gpu {
namespace {

/// A convolution, or a linear layer, which is a 1x1 convolution over one pixel.
class ConvolutionLowering final : public Lowering {
 public:
  struct Options {
    std::string name;
    ValueId input;
    std::int64_t kernel = 1;
    std::int64_t stride = 1;
    std::int64_t padding = 0;
    std::int64_t groups = 1;
    bool bias = false;
  };
  ConvolutionLowering(Options options, const LoweringContext& context)
      : options_(std::move(options)),
        id_(context.id),
        parameters_(context.node().parameters),
        makes_logits_(ends_in_linear(context.graph) &&
                      id_ + 2 == std::ssize(context.graph.nodes())) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Extent in = builder.extent(options_.input);
    const Extent out = builder.extent(id_);
    const ConvolutionShape unpadded{.batch = in.batch,
                                    .height = in.height,
                                    .width = in.width,
                                    .in_channels = in.channels,
                                    .out_channels = out.channels,
                                    .kernel = options_.kernel,
                                    .stride = options_.stride,
                                    .padding = options_.padding,
                                    .groups = options_.groups,
                                    .type = builder.type(),
                                    .tf32 = builder.state().tf32};
    if (options_.input == builder.input()) gather_ = column_gather(unpadded);
    const ConvolutionShape shape = stored_shape(unpadded, gather_, options_.name);
    const bool is_wide = makes_logits_ && builder.type() != DataType::f32;
    ConvolutionLibrary& library = builder.state().device->convolutions();
    forward_ = library.make(is_wide ? widened(shape) : shape, {.forward = true});
    if (builder.training()) {
      backward_ = library.make(shape, {.backward_data = builder.needs_gradient(options_.input),
                                       .backward_weights = true});
    }
    Tensor x = builder.value(op.inputs[0]);
    if (gather_) x = gathered_ = emit_gather(builder, x);
    Address weight = gather_ ? emit_filters(builder) : builder.working(parameters_[0]);
    if (is_wide) {
      x = emit_widening(builder, "input", {.tensor = x}, in.values()).tensor;
      weight =
          emit_widening(builder, "weight", weight, builder.state().arena.size_of(parameters_[0]));
    }
    const DataType type = is_wide ? DataType::f32 : builder.type();
    const Tensor y = builder.make(out.values() * size_of(type));
    const Tensor workspace = builder.make(forward_->workspace_bytes());
    builder.emit("convolution " + options_.name, {x, y, workspace, weight.tensor},
                 [x, y, workspace, weight, convolution = forward_](const LaunchContext& context) {
                   convolution->forward(context.at(x), context.at(weight), context.at(y),
                                        context.at(workspace));
                 });
    if (options_.bias) {
      const Address bias = builder.parameter(parameters_[1]);
      builder.emit("bias of " + options_.name, {y, y, bias.tensor},
                   [y, bias, extent = out.matrix(), type](const LaunchContext& context) {
                     add_bias(context.stream(), type, extent, context.as<const float>(bias),
                              context.at(y));
                   });
    }
    builder.set_value(*op.output, y);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor dy = builder.value(op.grad_output[0]);
    if (op.gradient.of_parameters) {
      const Tensor x = gather_ ? gathered_ : builder.value(op.inputs[0]);
      if (!builder.is_frozen(parameters_[0])) emit_weight_gradient(builder, x, dy);
      builder.complete(parameters_[0]);  // may free its buffer before the bias needs one
      if (options_.bias && !builder.is_frozen(parameters_[1])) emit_bias_gradient(builder, dy);
      return;
    }
    const Tensor dx = builder.make_like(options_.input);
    const Tensor workspace = builder.make(backward_->workspace_bytes());
    const Address weight = builder.working(parameters_[0]);
    builder.emit(
        "data gradient of " + options_.name, {dy, dx, workspace, weight.tensor},
        [dy, dx, workspace, weight, convolution = backward_](const LaunchContext& context) {
          convolution->backward_data(context.at(dy), context.at(weight), context.at(dx),
                                     context.at(workspace));
        });
    builder.set_value(*op.grad_inputs[0], dx);
  }

 private:
  /// The operand in fp32.
  [[nodiscard]] Address emit_widening(ProgramBuilder& builder, const char* what,
                                      const Address& from, std::size_t count) const {
    const Tensor wide = builder.make(count * sizeof(float));
    builder.emit(fmt::format("{} of {} in fp32", what, options_.name), {from.tensor, wide},
                 [from, wide, count, type = builder.type()](const LaunchContext& context) {
                   convert(context.stream(), context.at(from), type, context.at(wide),
                           DataType::f32, count);
                 });
    return {.tensor = wide};
  }

  [[nodiscard]] Tensor emit_gather(ProgramBuilder& builder, Tensor images) const {
    const Tensor gathered = builder.make(static_cast<std::size_t>(gather_->gathered_values()) *
                                         size_of(builder.type()));
    builder.emit(
        "columns for " + options_.name, {images, gathered},
        [images, gathered, gather = *gather_, type = builder.type()](const LaunchContext& context) {
          gather_columns(context.stream(), type, gather, context.at(images), context.at(gathered));
        });
    return gathered;
  }

  [[nodiscard]] Address emit_filters(ProgramBuilder& builder) const {
    const Address weight = builder.working(parameters_[0]);
    const Tensor gathered = builder.make(
        static_cast<std::size_t>(gather_->gathered_filter_values()) * size_of(builder.type()));
    builder.emit(
        "filters of " + options_.name, {weight.tensor, gathered},
        [weight, gathered, gather = *gather_, type = builder.type()](const LaunchContext& context) {
          gather_filters(context.stream(), type, gather, context.at(weight), context.at(gathered));
        });
    return {.tensor = gathered};
  }

  void emit_weight_gradient(ProgramBuilder& builder, Tensor x, Tensor dy) {
    const ParameterArena& arena = builder.state().arena;
    const DataType type = builder.type();
    const std::size_t size = gather_ ? static_cast<std::size_t>(gather_->gathered_filter_values())
                                     : arena.size_of(parameters_[0]);
    const Tensor workspace = builder.make(backward_->workspace_bytes());
    const Tensor scratch = builder.make(size * size_of(type));
    const std::string name = "weight gradient of " + options_.name;
    if (type != DataType::f32 && !gather_) {
      builder.emit(
          name, {x, dy, workspace, scratch},
          [x, dy, workspace, scratch, convolution = backward_](const LaunchContext& context) {
            convolution->backward_weights(context.at(x), context.at(dy), context.at(scratch),
                                          context.at(workspace));
          });
      return builder.convert_gradient(parameters_[0], scratch);
    }
    const Address place = builder.gradient_of(parameters_[0]);
    builder.emit(
        name, {x, dy, workspace, scratch, place.tensor},
        [x, dy, workspace, scratch, type, size, place, gather = gather_,
         convolution = backward_](const LaunchContext& context) {
          float* const target = context.as<float>(place);
          const bool direct = !context.accumulate && !gather;
          void* const dw = direct ? target : context.at(scratch);
          convolution->backward_weights(context.at(x), context.at(dy), dw, context.at(workspace));
          if (gather) {
            scatter_filters(context.stream(), type, *gather, dw, target, context.accumulate);
          } else if (!direct) {
            add(context.stream(), DataType::f32, target, dw, target, size);
          }
        });
  }

  void emit_bias_gradient(ProgramBuilder& builder, Tensor dy) {
    const Matrix extent = builder.extent(id_).matrix();
    const Tensor workspace = builder.make(reduction_workspace(extent));
    const Tensor scratch = builder.make(static_cast<std::size_t>(extent.padded) * sizeof(float));
    const Address place = builder.gradient_of(parameters_[1]);
    builder.emit("bias gradient of " + options_.name, {dy, workspace, scratch, place.tensor},
                 [dy, workspace, scratch, extent, place,
                  type = builder.type()](const LaunchContext& context) {
                   float* const target = context.as<float>(place);
                   float* const sums = context.accumulate ? context.as<float>(scratch) : target;
                   sum_rows(context.stream(), type, extent, context.at(dy), sums,
                            context.at(workspace));
                   if (context.accumulate) {
                     add(context.stream(), DataType::f32, target, sums, target,
                         static_cast<std::size_t>(extent.padded));
                   }
                 });
  }

  Options options_;
  ValueId id_;
  std::vector<ParameterId> parameters_;
  bool makes_logits_;
  std::shared_ptr<Convolution> forward_;
  std::shared_ptr<Convolution> backward_;  ///< null in inference
  std::optional<ColumnGather> gather_;
  Tensor gathered_;  ///< columns, if gather_
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Conv2d& op, const LoweringContext& context) {
  return std::make_unique<ConvolutionLowering>(
      ConvolutionLowering::Options{.name = op.options.name,
                                   .input = op.input,
                                   .kernel = op.options.kernel,
                                   .stride = op.options.stride,
                                   .padding = op.options.padding,
                                   .groups = op.options.groups,
                                   .bias = op.options.bias},
      context);
}

static std::unique_ptr<Lowering> make_lowering(const Linear& op, const LoweringContext& context) {
  return std::make_unique<ConvolutionLowering>(
      ConvolutionLowering::Options{.name = op.options.name, .input = op.input, .bias = true},
      context);
}

}  // namespace lockstep::gpu

template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Conv2d>;
template struct lockstep::LowerOp<lockstep::gpu::ProgramBuilder, lockstep::Linear>;
