#include "lockstep/compute/convolution_plan.hpp"

#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"

#include <set>

namespace lockstep {
namespace {

/// Operations of a step below which it takes too short to be timed well, and to matter.
constexpr double smallest_trial = 1e8;
/// Winograd's algorithm rounds more, and a trial is never exact: it must be worth it.
constexpr double worthwhile = 0.95;

std::set<WinogradShape> shapes_of(const Graph& graph) {
  std::set<WinogradShape> shapes;
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<Conv2d>(&node.op);
    if (op == nullptr) continue;
    if (const auto shape = winograd_shape(graph, *op)) shapes.insert(*shape);
  }
  return shapes;
}

std::optional<ConvolutionTimes> times_of(const ConvolutionProblem& problem, TrialCache& cache,
                                         const ConvolutionLibrary& library) {
  if (problem.operations() < smallest_trial) return std::nullopt;
  const std::string key =
      fmt::format("{}, {} threads, batch {}, {}, {}", onednn_description(), problem.threads,
                  problem.batch_size, problem.shape.text(), to_string(problem.step));
  if (const auto cached = cache.find(key)) return cached;
  const auto times = library.time(problem);
  if (times) cache.add(key, *times);
  return times;
}

}  // namespace

ConvolutionPlan plan_convolutions(const Graph& graph, const ConvolutionPlanOptions& options,
                                  TrialCache& cache, const ConvolutionLibrary& library) {
  require_conv_algorithm(options.algorithm, options.precision, DeviceChoice::cpu);
  ConvolutionPlan plan;
  if (options.precision != Precision::fp32) return plan;
  const ConvolutionChoices known = ConvolutionChoices::parse(
      options.algorithm == ConvAlgorithm::automatic ? options.known : std::string());
  bool any = false;
  for (const WinogradShape& shape : shapes_of(graph)) {
    for (const ConvolutionStep step : convolution_steps) {
      bool winograd = options.algorithm != ConvAlgorithm::direct;
      if (options.algorithm == ConvAlgorithm::automatic && known.contains(shape)) {
        winograd = known.winograd(shape, step);
      } else if (options.algorithm == ConvAlgorithm::automatic) {
        const auto times = times_of({.shape = shape,
                                     .step = step,
                                     .batch_size = options.batch_size,
                                     .threads = engine_threads(options.threads)},
                                    cache, library);
        if (times) plan.times.emplace(std::pair(shape, step), *times);
        winograd = times && times->winograd < worthwhile * times->direct;
      }
      winograd = winograd && library.has_winograd(shape, step);
      plan.choices.set(shape, step, winograd);
      any = any || winograd;
    }
  }
  cache.save();
  if (options.algorithm == ConvAlgorithm::winograd && !any) {
    fail(ExitStatus::usage,
         "--conv-algorithm winograd cannot be had for {} ({} has it for none of its convolutions) "
         "take auto or direct",
         graph.name(), onednn_description());
  }
  return plan;
}

}  // namespace lockstep
