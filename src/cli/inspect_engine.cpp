// How the processor's engine would compute a network: `inspect --model NAME --engine cpu`.
#include "inspect_report.hpp"
#include "lockstep/compute/convolution_plan.hpp"
#include "lockstep/engine/cpu_engine.hpp"

#include <fmt/format.h>

namespace lockstep::cli {
namespace {

std::string milliseconds(double seconds) {
  return fmt::format("{:.2f}", seconds * 1e3);
}

/// "winograd 5.57 (direct 11.18)"
std::string describe(bool winograd, const ConvolutionTimes* times) {
  std::string name = winograd ? "winograd" : "direct";
  if (times == nullptr) return name;
  const double taken = winograd ? times->winograd : times->direct;
  const double other = winograd ? times->direct : times->winograd;
  return fmt::format("{} {} ({} {})", name, milliseconds(taken), winograd ? "direct" : "winograd",
                     milliseconds(other));
}

}  // namespace

Report inspect_engine(const Graph& graph, const EngineQuestion& question,
                      const ConvolutionPlan& plan) {
  const auto engine = make_cpu_engine(
      graph,
      {.threads = question.threads, .precision = question.precision, .convolutions = plan.choices});
  Report report;
  report.text = fmt::format(
      "engine: {}\n"
      "algorithms of convolutions, and ms of a batch of {} where both were timed\n"
      "  {:<28}{:>14}  {:<34}{:<34}{}\n",
      engine->description(), question.batch_size, "convolution", "values", "forward",
      "data gradient", "weight gradient");
  report.json = {{"description", engine->description()},
                 {"batch_size", question.batch_size},
                 {"convolutions", nlohmann::ordered_json::array()}};
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<Conv2d>(&node.op);
    if (op == nullptr) continue;
    const auto shape = winograd_shape(graph, *op);
    nlohmann::ordered_json steps;
    std::vector<std::string> cells;
    for (const ConvolutionStep step : convolution_steps) {
      const bool winograd = shape && plan.choices.winograd(*shape, step);
      const auto found = shape ? plan.times.find({*shape, step}) : plan.times.end();
      const ConvolutionTimes* times = found == plan.times.end() ? nullptr : &found->second;
      cells.push_back(describe(winograd, times));
      nlohmann::ordered_json entry{{"algorithm", winograd ? "winograd" : "direct"}};
      if (times != nullptr) {
        entry["direct_seconds"] = times->direct;
        entry["winograd_seconds"] = times->winograd;
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
