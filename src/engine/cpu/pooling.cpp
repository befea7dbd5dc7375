#include "lowering.hpp"

#include <optional>
#include <utility>

namespace lockstep::cpu {
namespace {

/// Options common to the pooling ops.
struct PoolingOptions {
  dnnl::algorithm algorithm;
  std::string name;
  ValueId input;
  Dims kernel;
  Dims stride;
  Dims padding;
};

using Forward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

class PoolingLowering final : public Lowering {
 public:
  PoolingLowering(PoolingOptions options, ValueId id) : options_(std::move(options)), id_(id) {}

  void forward(ProgramBuilder& builder) override {
    const Tensor source = builder.value(options_.input);
    forward_ = checked(options_.name, [&] {
      return with_pooling_window(window(), [&](const auto&... window) {
        return primitive_desc<Forward>(builder.engine(), ProgramBuilder::attributes(),
                                       builder.forward_kind(), options_.algorithm, source.desc(),
                                       any_layout(builder.batch_shape(id_), builder.activations()),
                                       window...);
      });
    });
    const Tensor target = builder.make(forward_.dst_desc());
    ProgramBuilder::Arguments arguments{{DNNL_ARG_SRC, source}, {DNNL_ARG_DST, target}};
    if (forward_.workspace_desc().get_size() != 0) {
      workspace_ = builder.make(forward_.workspace_desc());
      arguments.emplace_back(DNNL_ARG_WORKSPACE, *workspace_);
    }
    builder.emit(options_.name, Forward(forward_), forward_.scratchpad_desc(), arguments);
    builder.set_value(id_, target);
  }

  void backward(ProgramBuilder& builder) override {
    if (!builder.needs_gradient(options_.input)) return;
    const std::string name = "gradient of " + options_.name;
    const Desc source = builder.format(options_.input);
    const auto pd = checked(name, [&] {
      return with_pooling_window(window(), [&](const auto&... window) {
        return backward_primitive_desc<Backward>(builder.engine(), ProgramBuilder::attributes(),
                                                 forward_, options_.algorithm, source,
                                                 forward_.dst_desc(), window...);
      });
    });
    const Tensor gradient = builder.in_format(builder.gradient(id_), pd.diff_dst_desc(), name);
    const Tensor target = builder.make(pd.diff_src_desc());
    ProgramBuilder::Arguments arguments{{DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, target}};
    if (workspace_) arguments.emplace_back(DNNL_ARG_WORKSPACE, *workspace_);
    builder.emit(name, Backward(pd), pd.scratchpad_desc(), arguments);
    builder.contribute(options_.input, target, ProgramBuilder::Ownership::exclusive, name);
  }

 private:
  [[nodiscard]] PoolingWindow window() const {
    return {.stride = options_.stride, .kernel = options_.kernel, .padding = options_.padding};
  }

  PoolingOptions options_;
  ValueId id_;
  Forward::primitive_desc forward_;
  std::optional<Tensor> workspace_;
};

/// Lowers an op with square windows.
std::unique_ptr<Lowering> lower_windows(dnnl::algorithm algorithm, const std::string& name,
                                        ValueId input, const PoolOptions& options,
                                        const LoweringContext& context) {
  return std::make_unique<PoolingLowering>(
      PoolingOptions{.algorithm = algorithm,
                     .name = name + " (node " + std::to_string(context.id) + ")",
                     .input = input,
                     .kernel = {options.kernel, options.kernel},
                     .stride = {options.stride, options.stride},
                     .padding = {options.padding, options.padding}},
      context.id);
}

}  // namespace

std::unique_ptr<Lowering> lower(const MaxPool& op, const LoweringContext& context) {
  return lower_windows(dnnl::algorithm::pooling_max, "max pooling", op.input, op.options, context);
}

std::unique_ptr<Lowering> lower(const AvgPool& op, const LoweringContext& context) {
  return lower_windows(dnnl::algorithm::pooling_avg_include_padding, "average pooling", op.input,
                       op.options, context);
}

std::unique_ptr<Lowering> lower(const GlobalAvgPool& op, const LoweringContext& context) {
  const Shape& input = context.graph.nodes()[static_cast<std::size_t>(op.input)].output;
  return std::make_unique<PoolingLowering>(
      PoolingOptions{.algorithm = dnnl::algorithm::pooling_avg_exclude_padding,
                     .name = "global average pooling (node " + std::to_string(context.id) + ")",
                     .input = op.input,
                     .kernel = {input[1], input[2]},
                     .stride = {1, 1},
                     .padding = {0, 0}},
      context.id);
}

}  // namespace lockstep::cpu
