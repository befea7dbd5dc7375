#pragma once

#include "lockstep/models/models.hpp"

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

/// Error(usage) if `graph`, which `make` returns for `options`, has other layers than for images of
/// the size `trained`, that of the weights in `file`. nullopt: the file does not say.
void require_trained_layers(const Graph& graph, ModelOptions options,
                            const std::optional<ImageShape>& trained,
                            const std::function<Graph(const ModelOptions&)>& make,
                            const std::string& file);

}  // namespace lockstep
