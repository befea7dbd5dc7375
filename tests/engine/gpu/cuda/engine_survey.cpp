#include "engine_survey.hpp"

#include "engine/gpu/cuda/cudnn_graph.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace lockstep::gpu::cuda {

namespace fe = cudnn_frontend;

EngineSurvey survey_engines(const std::string& device, const ConvolutionRequest& request,
                            const SurveyOptions& options) {
  auto properties = std::make_shared<fe::DeviceProperties>();
  if (auto status = properties->deserialize({device.begin(), device.end()}); status.is_bad()) {
    fail(ExitStatus::internal, "cuDNN does not take a description of a device ({})",
         status.get_message());
  }
  auto graph = make_graph(request);
  graph->set_device_properties(properties);
  if (auto status = offer_engines(*graph, nullptr); status.is_bad()) {
    return {.engines = {}, .reason = shorten(status.get_message())};
  }
  deselect(*graph, request.shape, options.plans, options.precompiled_only);
  std::vector<EngineSupport> engines;
  for (std::int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
    EngineSupport support;
    if (graph->get_plan_name_at_index(i, support.engine).is_bad()) continue;
    const bool known = std::any_of(engines.begin(), engines.end(), [&](const auto& other) {
      return other.engine == support.engine;
    });
    if (known) continue;
    std::vector<fe::BehaviorNote_t> notes;
    if (graph->get_behavior_notes_for_plan_at_index(i, notes).is_good()) {
      support.compiled_at_run = std::find(notes.begin(), notes.end(),
                                          fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
    }
    // Compiling takes seconds, and then needs a driver to load the result.
    if (support.compiled_at_run && !options.precompiled_only) {
      support.reason = "compiled at run time";
      engines.push_back(std::move(support));
      continue;
    }
    auto status = graph->build_plan_at_index(i);
    support.finalizes = status.is_good();
    const std::string reason = status.get_message();
    support.reason = shorten(reason);
    support.allowed = reason.find("Deselecting") == std::string::npos &&
                      reason.find("workspace violation") == std::string::npos;
    if (support.finalizes) {
      support.workspace_bytes =
          static_cast<std::size_t>(graph->get_workspace_size_plan_at_index(i));
    }
    engines.push_back(std::move(support));
    if (options.first_only && engines.back().finalizes) break;
  }
  return {.engines = std::move(engines), .reason = {}};
}

}  // namespace lockstep::gpu::cuda
