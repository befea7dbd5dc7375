#include "lockstep/train/parameter_options.hpp"

#include "lockstep/core/error.hpp"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace lockstep {
namespace {

/// `scales`: factors by parameter.
void set_matching(Graph& graph, const char* option, const std::string& pattern, double lr_scale,
                  const std::vector<double>& scales) {
  bool any = false;
  for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
    if (fnmatch(pattern.c_str(), graph.parameters()[id].name.c_str(), 0) != 0) continue;
    graph.set_lr_scale(static_cast<ParameterId>(id), lr_scale * scales[id]);
    any = true;
  }
  if (any) return;
  fail(ExitStatus::usage,
       "--{} has the pattern {}, which matches no parameter of {} (the first is {}, the last {}); "
       "use * for any text, as layer1.*",
       option, pattern, graph.name(), graph.parameters().front().name,
       graph.parameters().back().name);
}

/// Layers are numbered as by timm: those before the first block; each block, with what follows it;
/// the last linear layer.
void set_layer_decay(Graph& graph, double decay) {
  int blocks = 0;
  for (const Node& node : graph.nodes()) blocks = std::max(blocks, node.block + 1);
  if (blocks == 0) {
    fail(ExitStatus::usage,
         "--layer-decay {} does not go with {} (it has no blocks); drop it, or use --lr-scale",
         decay, graph.name());
  }
  const auto is_linear = [](const Node& node) { return std::holds_alternative<Linear>(node.op); };
  const auto last_linear = std::find_if(graph.nodes().rbegin(), graph.nodes().rend(), is_linear);
  int layers_after = blocks + 1;
  for (const Node& node : graph.nodes()) {
    if (node.block >= 0) layers_after = blocks - node.block;
    if (last_linear != graph.nodes().rend() && &node == &*last_linear) layers_after = 0;
    for (const ParameterId id : node.parameters) {
      graph.set_lr_scale(id, std::pow(decay, layers_after));
    }
  }
}

void fix_statistics(Graph& graph, const Config& config) {
  const auto is_frozen = [&](ParameterId id) {
    return graph.parameters()[static_cast<std::size_t>(id)].is_frozen();
  };
  for (const Node& node : graph.nodes()) {
    if (!node.statistics.empty() && std::ranges::all_of(node.parameters, is_frozen)) {
      graph.fix_statistics(node);
    }
  }
  if (graph.has_fixed_statistics()) return;
  fail(ExitStatus::usage,
       "--frozen-norms running, but no batch norm of {} is frozen (--freeze {} freezes the weight "
       "and the bias of none); add both to --freeze, or drop --frozen-norms",
       graph.name(), fmt::join(config.freeze, ","));
}

}  // namespace

void apply_parameter_options(Graph& graph, const Config& config) {
  if (config.layer_decay != 1) set_layer_decay(graph, config.layer_decay);
  std::vector<double> scales;
  for (const Parameter& parameter : graph.parameters()) scales.push_back(parameter.lr_scale);
  for (const LrScale& scale : config.lr_scale) {
    set_matching(graph, "lr-scale", scale.pattern, scale.factor, scales);
  }
  for (const std::string& pattern : config.freeze) {
    set_matching(graph, "freeze", pattern, 0, scales);
  }
  if (!config.freeze.empty() && std::ranges::all_of(graph.parameters(), &Parameter::is_frozen)) {
    fail(ExitStatus::usage,
         "--freeze {} freezes all {} parameters of {} (nothing is left to train); freeze fewer",
         fmt::join(config.freeze, ","), graph.parameters().size(), graph.name());
  }
  if (config.frozen_norms == FrozenNorms::running) fix_statistics(graph, config);
}

}  // namespace lockstep
