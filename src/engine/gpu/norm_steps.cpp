#include "norm_steps.hpp"

#include <string>

namespace lockstep::gpu {
namespace {

/// Stochastic depth of a node's norm.
SampleDrop drop_of(const ProgramBuilder& builder, const Node& node) {
  const StochasticDepth& drop = std::get<BatchNorm>(node.op).options.drop;
  if (!builder.training() || drop.probability == 0) return {};
  return {.rows = Divisor(static_cast<std::uint32_t>(node.output[1] * node.output[2])),
          .block = drop.block,
          .scale = drop.scale()};
}

}  // namespace

Normalization NormOperands::at(const LaunchContext& context) const {
  SampleDrop of_batch = drop;
  of_batch.dropped = context.dropped;
  return {.mean = mean,
          .inverse_deviation = inverse_deviation,
          .weight = context.as<const float>(weight),
          .bias = context.as<const float>(bias),
          .drop = of_batch};
}

NormOperands norm_operands(ProgramBuilder& builder, const Node& node) {
  return {.mean = builder.statistics().of(node.statistics[0]),
          .inverse_deviation = builder.statistics().inverse_deviations(node.statistics[1]),
          .weight = builder.parameter(node.parameters[0]),
          .bias = builder.parameter(node.parameters[1]),
          .drop = drop_of(builder, node)};
}

void NormSumsOperands::list(std::vector<Tensor>& touched) const {
  touched.insert(touched.end(), {x, norm.weight.tensor, norm.bias.tensor, weight.tensor});
}

NormGradient NormSumsOperands::gradient(const LaunchContext& context, void* dx) const {
  if (is_fixed) context.device.clear(context.at(weight), bytes);
  return {.x = context.at(x),
          .norm = norm.at(context),
          .weight_gradient = context.as<float>(weight),
          .bias_gradient = context.as<float>(bias),
          .dx = dx};
}

NormSumsOperands norm_sums(ProgramBuilder& builder, const Node& node, Tensor x) {
  const auto bytes = static_cast<std::size_t>(padded_channels(node.output[0])) * sizeof(float);
  const Tensor both = builder.make(2 * bytes);
  return {.x = x,
          .norm = norm_operands(builder, node),
          .weight = {.tensor = both},
          .bias = {.tensor = both, .offset = bytes},
          .bytes = 2 * bytes,
          .is_fixed = !takes_statistics(builder, node)};
}

NormSums NormSumsTarget::at(const LaunchContext& context) const {
  return {.x = context.at(sums.x),
          .norm = sums.norm.at(context),
          .weight = context.as<float>(sums.weight),
          .bias = context.as<float>(sums.bias),
          .kept = {.weight = context.as<float>(weight),
                   .bias = context.as<float>(bias),
                   .adds = context.accumulate}};
}

NormSumsTarget norm_sums_target(ProgramBuilder& builder, const Node& node,
                                const NormSumsOperands& sums, std::vector<Tensor>& touched) {
  sums.list(touched);
  return {.sums = sums,
          .weight = builder.trained_gradient_of(node.parameters[0], touched),
          .bias = builder.trained_gradient_of(node.parameters[1], touched)};
}

bool takes_statistics(ProgramBuilder& builder, const Node& node) {
  return builder.training() && !builder.state().graph.has_fixed_statistics(node);
}

void emit_norm_statistics(ProgramBuilder& builder, const Node& node, const Matrix& extent,
                          Tensor x) {
  const BatchNormOptions& options = std::get<BatchNorm>(node.op).options;
  const Tensor workspace = builder.make(reduction_workspace(extent));
  StatisticsBlock& block = builder.statistics();
  const NormStatistics out{.mean = block.of(node.statistics[0]),
                           .variance = block.of(node.statistics[1]),
                           .inverse_deviation = block.inverse_deviations(node.statistics[1]),
                           .eps = static_cast<float>(options.eps)};
  if (builder.state().norms == nullptr) {
    return builder.emit(
        "statistics of " + options.name, {x, workspace},
        [x, workspace, extent, type = builder.type(), out](const LaunchContext& context) {
          batch_norm_statistics(context.stream(), type, extent, context.at(x), out,
                                context.at(workspace));
        });
  }
  const std::size_t count = count_of_norm_sums(extent);
  const Tensor sums = builder.make(count * sizeof(double));
  double* const elements = block.add_elements(*builder.state().device, node.statistics[1]);
  builder.emit("sums of " + options.name, {x, workspace, sums},
               [x, workspace, sums, extent, type = builder.type()](const LaunchContext& context) {
                 batch_norm_sums(context.stream(), type, extent, context.at(x),
                                 context.as<double>(sums), context.at(workspace));
               });
  builder.emit_sum_over_ranks<double>("sums of " + options.name + " over ranks", sums, count);
  builder.emit("statistics of " + options.name + " over ranks", {sums},
               [sums, extent, out, elements](const LaunchContext& context) {
                 statistics_of_sums(context.stream(), extent, context.as<double>(sums), out,
                                    elements);
               });
}

void emit_norm_share(ProgramBuilder& builder, const Node& node, const Matrix& extent,
                     const NormSumsOperands& sums) {
  const double* const elements = builder.statistics().elements(node.statistics[1]);
  if (elements == nullptr) return;
  const std::string& name = std::get<BatchNorm>(node.op).options.name;
  const Tensor both = sums.weight.tensor;
  builder.emit_sum_over_ranks<float>("gradients of batch norm " + name + " over ranks", both,
                                     sums.bytes / sizeof(float));
  builder.emit("share of gradients of batch norm " + name, {both},
               [both, extent, elements](const LaunchContext& context) {
                 scale_to_share(context.stream(), extent, elements, context.as<float>(both));
               });
}

}  // namespace lockstep::gpu
