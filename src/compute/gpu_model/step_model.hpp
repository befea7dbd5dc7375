#pragma once

#include "gpu_spec.hpp"
#include "listing_device.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/graph/graph.hpp"

#include <map>
#include <string>
#include <vector>

namespace lockstep::gpu {

/// What one launch, or several, take by prediction.
struct LaunchCost {
  int launches = 0;
  double bytes = 0;  ///< read and written
  double operations = 0;
  double seconds = 0;
  double seconds_at_peak = 0;  ///< at the peak rates, without the cost of a launch
  LaunchCost& operator+=(const LaunchCost& more) noexcept;
};
struct ModelledLaunch {
  std::string step;    ///< "weight gradient of layer1.0.conv2"
  std::string kernel;  ///< "convolution", "BackwardApply"
  LaunchCost cost;
};

/// A prediction, not a measurement.
struct StepModel {
  std::vector<ModelledLaunch> launches;  ///< in the order of the step
  [[nodiscard]] LaunchCost total() const;
  [[nodiscard]] std::map<std::string, LaunchCost> by_kernel() const;
};

/// Predicts a training step of `graph` on one GPU: forward, backward and the update. Reads from
/// config: precision, batch_size, batch_norm, optimizer and its options. A launch takes a fixed
/// time and the longer of its traffic and its operations, each at a share of the peak rate that was
/// fitted to a profile of ResNet-50 on an H200. Each value counts once for each step that reads or
/// writes it, so caches are neglected.
[[nodiscard]] StepModel model_step(const Graph& graph, const Config& config, const GpuSpec& gpu);

}  // namespace lockstep::gpu
