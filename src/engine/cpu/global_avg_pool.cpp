#include "pooling.hpp"

namespace lockstep::cpu {

std::unique_ptr<Lowering> lower(const GlobalAvgPool& op, const LoweringContext& context) {
  const Shape& input = context.graph.nodes()[static_cast<std::size_t>(op.input)].output;
  return lower_pooling({.algorithm = dnnl::algorithm::pooling_avg_exclude_padding,
                        .name = "global average pooling (node " + std::to_string(context.id) + ")",
                        .input = op.input,
                        .kernel = {input[1], input[2]},
                        .stride = {1, 1},
                        .padding = {0, 0}},
                       context);
}

}  // namespace lockstep::cpu
