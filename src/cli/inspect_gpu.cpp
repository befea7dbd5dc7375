// Predicts a training step on a GPU: `inspect --model NAME --engine gpu`.
#include "../compute/gpu_model/step_model.hpp"
#include "inspect_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::cli {
namespace {

std::string row(const std::string& name, const gpu::LaunchCost& cost) {
  return fmt::format("  {:<66}{:>9}{:>9.3f}{:>9.3f}{:>9.3f}{:>10.1f}\n", name, cost.launches,
                     1e3 * cost.seconds, 1e3 * cost.seconds_at_peak, cost.bytes / 1e9,
                     cost.operations / 1e9);
}

constexpr const char* columns = "  {:<66} launches       ms  at peak       GB    GFLOP\n";

}  // namespace

Report inspect_gpu(const Graph& graph, const Config& config, const std::string& name) {
  const gpu::GpuSpec& spec = gpu::gpu_spec(name);
  const gpu::StepModel model = gpu::model_step(graph, config, spec);
  const gpu::LaunchCost all = model.total();
  const auto sums = model.by_kernel();
  std::vector<std::pair<std::string, gpu::LaunchCost>> kernels(sums.begin(), sums.end());
  std::ranges::sort(
      kernels, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::vector<gpu::ModelledLaunch> launches = model.launches;
  std::ranges::stable_sort(
      launches, [](const auto& a, const auto& b) { return a.cost.seconds > b.cost.seconds; });

  const double rate = static_cast<double>(config.batch_size) / all.seconds;
  Report report;
  report.text = fmt::format(
      "predicted, not measured: a step of {} images in {} on one {}: {:.2f} ms, {:.0f} images/s\n"
      "({:.2f} ms at the peak rates; GB: read and written; without the host and its copies)\n",
      config.batch_size, to_string(config.precision), spec.title, 1e3 * all.seconds, rate,
      1e3 * all.seconds_at_peak);
  report.text += fmt::format(columns, "by kernel");
  for (const auto& [kernel, sum] : kernels) report.text += row(kernel, sum);
  report.text += row("total", all);
  constexpr std::size_t shown = 20;
  report.text += fmt::format(columns, "longest launches");
  for (std::size_t i = 0; i < std::min(shown, launches.size()); ++i) {
    const gpu::ModelledLaunch& launch = launches[i];
    report.text += row(fmt::format("{}: {}", launch.kernel, launch.step), launch.cost);
  }
  if (launches.size() > shown) {
    report.text += fmt::format("  ({} more: --json lists them in the order of the step)\n",
                               launches.size() - shown);
  }

  report.json = {{"predicted", true},
                 {"gpu", spec.title},
                 {"precision", to_string(config.precision)},
                 {"batch_size", config.batch_size},
                 {"seconds", all.seconds},
                 {"seconds_at_peak_rates", all.seconds_at_peak},
                 {"images_per_second", rate},
                 {"launches", Json::array()}};
  for (const gpu::ModelledLaunch& launch : model.launches) {
    report.json["launches"].push_back({{"step", launch.step},
                                       {"kernel", launch.kernel},
                                       {"seconds", launch.cost.seconds},
                                       {"seconds_at_peak_rates", launch.cost.seconds_at_peak},
                                       {"bytes", launch.cost.bytes},
                                       {"operations", launch.cost.operations}});
  }
  return report;
}

}  // namespace lockstep::cli
