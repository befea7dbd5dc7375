#pragma once

#include "lockstep/graph/graph.hpp"

#include <string>

namespace lockstep::cli {

/// Why no module of torchvision.models has the network's tensors. Empty: the function there with
/// the graph's name makes one, with num_classes = graph.classes().
[[nodiscard]] std::string torchvision_misfit(const Graph& graph);

}  // namespace lockstep::cli
