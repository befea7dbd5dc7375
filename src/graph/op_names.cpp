#include "op_names.hpp"

#include <array>
#include <variant>

namespace lockstep {

std::string_view op_name(const Op& op) {
  static constexpr std::array<std::string_view, 10> names{
      "input",    "conv2d",          "batch_norm", "relu",   "add",
      "max_pool", "global_avg_pool", "flatten",    "linear", "softmax_cross_entropy"};
  static_assert(names.size() == std::variant_size_v<Op>);
  return names[op.index()];
}

std::string layer_name(const Op& op) {
  return std::visit(
      [&](const auto& each) -> std::string {
        if constexpr (requires { each.options.name; }) return each.options.name;
        return std::string(op_name(op));
      },
      op);
}

}  // namespace lockstep
