#include "lockstep/compute/convolution_plan.hpp"

#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/graph/summary.hpp"

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

/// Steps with fewer operations are too short to be timed well, or to matter.
constexpr double smallest_trial = 1e8;
/// Winograd's algorithm rounds more and trials are inexact, so it must be this much faster.
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

/// Scratch memory is in the arena of the network's values while a step runs. Limit: the larger of
/// half a GiB and a quarter of all values.
double allowed_scratch(const Graph& graph, std::int64_t batch_size) {
  const std::int64_t values = summarize_model(graph).activation_bytes * batch_size;
  return std::max(0x1p29, static_cast<double>(values) / 4);
}

ConvolutionTimes times_of(const ConvolutionProblem& problem, TrialCache& cache,
                          const ConvolutionLibrary& library) {
  // Increase the trial number when an algorithm or the measurement changes.
  const std::string key =
      fmt::format("{}, trial 3, {}, {} threads, batch {}, {}, {}", onednn_description(),
                  problem.bf16 ? "bf16" : "fp32", problem.threads, problem.batch_size,
                  problem.shape.text(), to_string(problem.step));
  if (const auto cached = cache.find(key)) return *cached;
  const ConvolutionTimes times = library.time(problem);
  cache.add(key, times);
  return times;
}

/// Empty if there is nothing to try.
std::optional<ConvolutionTrial> try_winograd(const ConvolutionProblem& problem, double allowed,
                                             TrialCache& cache, const ConvolutionLibrary& library) {
  if (problem.operations() < smallest_trial) return std::nullopt;
  const std::size_t scratch = library.winograd_scratch_bytes(problem);
  ConvolutionTrial trial{.scratch_bytes = scratch};
  if (static_cast<double>(scratch) <= allowed) trial.times = times_of(problem, cache, library);
  return trial;
}

bool is_worthwhile(const ConvolutionTrial& trial) {
  return trial.times && trial.times->winograd < worthwhile * trial.times->direct;
}

}  // namespace

ConvolutionPlan plan_convolutions(const Graph& graph, const ConvolutionPlanOptions& options,
                                  TrialCache& cache, const ConvolutionLibrary& library) {
  require_conv_algorithm(options.algorithm, options.precision, DeviceChoice::cpu);
  ConvolutionPlan plan;
  const bool bf16 = options.precision == Precision::bf16;
  if (!bf16 && options.precision != Precision::fp32) return plan;
  const bool automatic = options.algorithm == ConvAlgorithm::automatic;
  // Direct convolutions in bf16 by a matrix unit are faster than any in fp32.
  const bool tries = !(bf16 && library.has_matrix_unit());
  const ConvolutionChoices known =
      ConvolutionChoices::parse(automatic ? options.known : std::string());
  const double allowed = allowed_scratch(graph, options.batch_size);
  const auto by_trial = [&](const WinogradShape& shape, ConvolutionStep step) {
    if (!tries) return false;
    const auto trial = try_winograd({.shape = shape,
                                     .step = step,
                                     .batch_size = options.batch_size,
                                     .threads = engine_threads(options.threads),
                                     .bf16 = bf16},
                                    allowed, cache, library);
    if (trial) plan.trials.emplace(std::pair(shape, step), *trial);
    return trial && is_worthwhile(*trial);
  };
  bool any = false;
  for (const WinogradShape& shape : shapes_of(graph)) {
    for (const ConvolutionStep step : convolution_steps) {
      const bool winograd = known.contains(shape) ? known.winograd(shape, step)
                            : automatic           ? by_trial(shape, step)
                                                  : options.algorithm == ConvAlgorithm::winograd;
      plan.choices.set(shape, step, winograd);
      any = any || winograd;
    }
  }
  cache.save();
  if (options.algorithm == ConvAlgorithm::winograd && !any) {
    fail(ExitStatus::usage,
         "--conv-algorithm winograd does not apply to {} (it has no 3x3 convolution of stride 1 "
         "from and to at least 16 channels in one group); use auto or direct",
         graph.name());
  }
  return plan;
}

}  // namespace lockstep
