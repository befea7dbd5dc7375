#include "torchvision_module.hpp"

#include "lockstep/models/models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::cli {
namespace {

constexpr std::array<std::string_view, 3> unknown_to_torchvision{"mini-resnet", "simple-cnn",
                                                                 "mlp"};

}  // namespace

std::string torchvision_misfit(const Graph& graph) {
  const std::string& name = graph.name();
  if (std::ranges::count(unknown_to_torchvision, name) > 0) {
    return fmt::format("torchvision has no {}", name);
  }
  // The default options give torchvision's. Running statistics have their parameters' shapes.
  const Graph there = make_model(name, {.classes = graph.classes()});
  for (const Parameter& parameter : graph.parameters()) {
    const auto same = std::ranges::find(there.parameters(), parameter.name, &Parameter::name);
    if (same == there.parameters().end()) return fmt::format("{} has no {}", name, parameter.name);
    if (same->shape == parameter.shape) continue;
    return fmt::format("{} is {}, that of {} {}", parameter.name, to_string(parameter.shape), name,
                       to_string(same->shape));
  }
  if (graph.parameters().size() == there.parameters().size()) return {};
  return fmt::format("{} has {} parameters, it {}", name, there.parameters().size(),
                     graph.parameters().size());
}

}  // namespace lockstep::cli
