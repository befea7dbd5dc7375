// Which algorithms the CPU engine uses for a network: `inspect --model NAME --engine cpu`.
#include "inspect_report.hpp"
#include "lockstep/compute/convolution_plan.hpp"
#include "lockstep/engine/cpu_engine.hpp"

#include <fmt/format.h>

namespace lockstep::cli {
namespace {

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", seconds * 1e3);
}

/// "winograd 5.57 (direct 11.18)", "direct (winograd takes 2481 MiB)"
std::string describe(bool winograd, const ConvolutionTrial* trial) {
  std::string name = winograd ? "winograd" : "direct";
  if (trial == nullptr) return name;
  if (!trial->times) {
    return fmt::format("direct (winograd takes {:.0f} MiB)",
                       static_cast<double>(trial->scratch_bytes) / 0x1p20);
  }
  const double taken = winograd ? trial->times->winograd : trial->times->direct;
  const double other = winograd ? trial->times->direct : trial->times->winograd;
  return fmt::format("{} {} ({} {})", name, milliseconds(taken), winograd ? "direct" : "winograd",
                     milliseconds(other));
}

}  // namespace

Report inspect_engine(const Graph& graph, const Config& config, const ConvolutionPlan& plan) {
  const auto engine = make_cpu_engine(graph, {.threads = static_cast<int>(config.threads),
                                              .precision = config.precision,
                                              .convolutions = plan.choices});
  Report report;
  report.text = fmt::format(
      "engine: {}\n"
      "algorithms of convolutions, and ms of a batch of {} where both were timed\n"
      "  {:<28}{:>14}  {:<34}{:<34}{}\n",
      engine->description(), config.batch_size, "convolution", "values", "forward", "data gradient",
      "weight gradient");
  report.json = {{"description", engine->description()},
                 {"batch_size", config.batch_size},
                 {"convolutions", Json::array()}};
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<Conv2d>(&node.op);
    if (op == nullptr) continue;
    const auto shape = winograd_shape(graph, *op);
    Json steps;
    std::vector<std::string> cells;
    for (const ConvolutionStep step : convolution_steps) {
      const bool winograd = shape && plan.choices.winograd(*shape, step);
      const auto found = shape ? plan.trials.find({*shape, step}) : plan.trials.end();
      const ConvolutionTrial* trial = found == plan.trials.end() ? nullptr : &found->second;
      cells.push_back(describe(winograd, trial));
      Json entry{{"algorithm", winograd ? "winograd" : "direct"}};
      if (trial != nullptr) entry["winograd_scratch_bytes"] = trial->scratch_bytes;
      if (trial != nullptr && trial->times) {
        entry["direct_seconds"] = trial->times->direct;
        entry["winograd_seconds"] = trial->times->winograd;
      }
      steps[to_string(step)] = entry;
    }
    report.text += fmt::format("  {:<28}{:>14}  {:<34}{:<34}{}\n", op->options.name,
                               to_string(node.output), cells[0], cells[1], cells[2]);
    report.json["convolutions"].push_back({{"name", op->options.name}, {"steps", steps}});
  }
  return report;
}

}  // namespace lockstep::cli
