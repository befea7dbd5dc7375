#include "pooling.hpp"

namespace lockstep::cpu {

std::unique_ptr<Lowering> lower(const MaxPool& op, const LoweringContext& context) {
  return lower_pooling({.algorithm = dnnl::algorithm::pooling_max,
                        .name = "max pooling (node " + std::to_string(context.id) + ")",
                        .input = op.input,
                        .kernel = {op.options.kernel, op.options.kernel},
                        .stride = {op.options.stride, op.options.stride},
                        .padding = {op.options.padding, op.options.padding}},
                       context);
}

}  // namespace lockstep::cpu
