#include "../lowering.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace lockstep::cpu {
namespace {

/// Options common to the pooling ops.
struct PoolingOptions {
  dnnl::algorithm algorithm;
  std::string name;
  PoolingWindow window;
};

using Forward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

class PoolingLowering final : public Lowering {
 public:
  explicit PoolingLowering(PoolingOptions options) : options_(std::move(options)) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor source = builder.value(op.inputs[0]);
    source_ = source.desc();
    forward_ = checked(options_.name, [&] {
      return with_pooling_window(options_.window, [&](const auto&... window) {
        return primitive_desc<Forward>(
            builder.engine(), ProgramBuilder::attributes(), builder.forward_kind(),
            options_.algorithm, source.desc(),
            any_layout(builder.batch_shape(op.node), builder.activations()), window...);
      });
    });
    const Tensor target = builder.make(forward_.dst_desc());
    ProgramBuilder::Arguments arguments{{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}};
    if (forward_.workspace_desc().get_size() != 0) {
      workspace_ = builder.make(forward_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, *workspace_);
    }
    builder.emit(options_.name, Forward(forward_), forward_.scratchpad_desc(), arguments);
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const std::string name = "gradient of " + options_.name;
    const auto pd = checked(name, [&] {
      return with_pooling_window(options_.window, [&](const auto&... window) {
        return backward_primitive_desc<Backward>(builder.engine(), ProgramBuilder::attributes(),
                                                 forward_, options_.algorithm, source_,
                                                 forward_.dst_desc(), window...);
      });
    });
    const Tensor gradient =
        builder.in_format(builder.value(op.grad_output[0]), pd.diff_dst_desc(), name);
    const Tensor target = builder.make(pd.diff_src_desc());
    ProgramBuilder::Arguments arguments{{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, target}};
    if (workspace_) arguments.emplace_back(DNNL_ARG_WORKSPACE, *workspace_);
    builder.emit(name, Backward(pd), pd.scratchpad_desc(), arguments);
    builder.set_value(*op.grad_inputs[0], target);
  }

 private:
  PoolingOptions options_;
  Forward::primitive_desc forward_;
  Desc source_;
  std::optional<Tensor> workspace_;
};

/// Lowers an op with square windows.
template <typename Op>
std::unique_ptr<Lowering> lower_windows(dnnl::algorithm algorithm, const std::string& name,
                                        const Op& op, const LoweringContext& context) {
  const std::int64_t kernel = op.options.kernel;
  const std::int64_t stride = op.options.stride;
  const std::int64_t padding = op.options.padding;
  const Shape& input = context.node(op.input).output;
  const Shape& output = context.node().output;
  // What the last window needs; at least the padding, from which oneDNN infers the extent.
  const auto end_padding = [&](std::size_t axis) {
    return std::max(padding, (output[axis] - 1) * stride + kernel - padding - input[axis]);
  };
  return std::make_unique<PoolingLowering>(
      PoolingOptions{.algorithm = algorithm,
                     .name = name + " (node " + std::to_string(context.id) + ")",
                     .window = {.stride = {stride, stride},
                                .kernel = {kernel, kernel},
                                .padding = {padding, padding},
                                .end_padding = {end_padding(1), end_padding(2)}}});
}

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const MaxPool& op, const LoweringContext& context) {
  return lower_windows(dnnl::algorithm::pooling_max, "max pooling", op, context);
}

static std::unique_ptr<Lowering> make_lowering(const AvgPool& op, const LoweringContext& context) {
  const auto algorithm = op.options.partial_windows ? dnnl::algorithm::pooling_avg_exclude_padding
                                                    : dnnl::algorithm::pooling_avg_include_padding;
  return lower_windows(algorithm, "average pooling", op, context);
}

static std::unique_ptr<Lowering> make_lowering(const GlobalAvgPool& op,
                                               const LoweringContext& context) {
  const Shape& input = context.graph.nodes()[static_cast<std::size_t>(op.input)].output;
  return std::make_unique<PoolingLowering>(
      PoolingOptions{.algorithm = dnnl::algorithm::pooling_avg_exclude_padding,
                     .name = "global average pooling (node " + std::to_string(context.id) + ")",
                     .window = {.stride = {1, 1},
                                .kernel = {input[1], input[2]},
                                .padding = {0, 0},
                                .end_padding = {0, 0}}});
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::MaxPool>;
template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::AvgPool>;
template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::GlobalAvgPool>;
