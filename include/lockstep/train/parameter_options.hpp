#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"

namespace lockstep {

/// Sets the learning rates of --freeze and --lr-scale. Error(usage) if a pattern matches no
/// parameter, or if all are frozen.
void apply_parameter_options(Graph& graph, const Config& config);

}  // namespace lockstep
