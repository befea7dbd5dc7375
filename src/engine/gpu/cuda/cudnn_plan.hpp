#pragma once

#include "../convolution_request.hpp"
#include "../device_options.hpp"

#include <cudnn.h>

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::gpu::cuda {

/// One pass of a convolution, bound to one of cuDNN's engines.
class ConvolutionPlan {
 public:
  virtual ~ConvolutionPlan() = default;
  [[nodiscard]] virtual std::size_t workspace_bytes() const noexcept = 0;
  /// cuDNN's name of the engine and its settings.
  [[nodiscard]] virtual const std::string& engine() const noexcept = 0;
  /// Queues the pass in the handle's stream. Of x (N, H, W, C), weights (K, R, S, C) and y (N, P,
  /// Q, K), or their gradients, it reads two and writes the pass's output.
  virtual void run(cudnnHandle_t handle, void* x, void* weights, void* y, void* workspace) = 0;
};

/// A plan, or why there is none.
struct PlanResult {
  std::unique_ptr<ConvolutionPlan> plan;
  std::string reason;
};
/// Engines that the library compiles when a plan is made, which takes seconds, are used only if no
/// other computes the pass within the workspace.
/// `known`: the engine to use if the library offers it; empty: choose by `options`.
[[nodiscard]] PlanResult make_plan(cudnnHandle_t handle, const ConvolutionRequest& request,
                                   const PlanOptions& options, const std::string& known = {});

}  // namespace lockstep::gpu::cuda
