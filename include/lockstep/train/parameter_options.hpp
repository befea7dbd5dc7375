#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/graph/graph.hpp"

namespace lockstep {

/// Sets the learning rates of --layer-decay, --lr-scale and --freeze, and fixes the statistics of
/// --frozen-norms. Error(usage) if a pattern matches no parameter, if all are frozen, or if no norm
/// is frozen whose statistics are to be fixed.
void apply_parameter_options(Graph& graph, const Config& config);

}  // namespace lockstep
