#pragma once

#include "../convolution_request.hpp"
#include "../device_options.hpp"

// Skips the headers' JSON, which nothing here needs and which dominates their compile time.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::gpu::cuda {

/// Identifiers of a graph's tensors.
enum TensorId : std::int64_t { x_id = 1, weights_id = 2, y_id = 3 };

using Extents = std::array<std::int64_t, 4>;
/// The library infers the number of groups: channels of x / channels of the weights.
struct TensorSet {
  Extents x;
  Extents weights;
  Extents y;
};
[[nodiscard]] TensorSet extents_of(const ConvolutionShape& shape);

/// One pass of a convolution as a graph of the library.
[[nodiscard]] std::unique_ptr<cudnn_frontend::graph::Graph> make_graph(
    const ConvolutionRequest& request);
/// Lowers the graph and adds the candidates that the heuristics offer; else the library's error.
/// Without a handle, for the device that was described to the graph.
[[nodiscard]] cudnn_frontend::error_t offer_engines(cudnn_frontend::graph::Graph& graph,
                                                    cudnnHandle_t handle);
/// Rules out engines with less precision than asked for, or with results that vary between runs.
void deselect(cudnn_frontend::graph::Graph& graph, const ConvolutionShape& shape,
              const PlanOptions& options, bool precompiled_only);
/// The first line of the library's message, which lists all engines line by line.
[[nodiscard]] std::string shorten(const std::string& message);

}  // namespace lockstep::gpu::cuda
