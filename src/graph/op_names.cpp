#include "op_names.hpp"

#include <variant>

namespace lockstep {

std::string_view op_name(const Op& op) {
  return std::visit([](const auto& each) { return each.op_name; }, op);
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
