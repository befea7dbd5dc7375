#pragma once

#include "engine/gpu/convolution_request.hpp"
#include "engine/gpu/device_options.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::gpu::cuda {

/// What cuDNN supports on a device that is only described to it.
struct EngineSupport {
  std::string engine;
  bool allowed = false;          ///< tried and not ruled out by precision, determinism or workspace
  bool compiled_at_run = false;  ///< needs a driver before it is known to work; not tried
  bool finalizes = false;        ///< a plan was made
  std::size_t workspace_bytes = 0;
  std::string reason;  ///< why there is no plan
};
struct EngineSurvey {
  std::vector<EngineSupport> engines;  ///< those that cuDNN's heuristics offer, best first
  std::string reason;                  ///< why there is none
};
struct SurveyOptions {
  PlanOptions plans = {};
  /// Engines that are compiled at run time are ruled out; else they are listed, but not tried.
  bool precompiled_only = false;
  bool first_only = false;  ///< ends with the first engine that finalizes
};
/// `device` is the library's own JSON description of a device
/// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
[[nodiscard]] EngineSurvey survey_engines(const std::string& device,
                                          const ConvolutionRequest& request,
                                          const SurveyOptions& options);

}  // namespace lockstep::gpu::cuda
