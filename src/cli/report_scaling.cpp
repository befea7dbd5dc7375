// The page and the table of a scaling study, with what parallel/step_prediction predicts.
#include "report_scaling.hpp"

#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/print.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/page.hpp"
#include "lockstep/report/scaling_study.hpp"
#include "model_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

namespace lockstep::cli {
namespace {

using report::PredictedPoint;
using report::ScalingPoint;
using report::ScalingStudy;

/// Options of `lockstep bench step` on which a prediction depends, as its result names them.
constexpr std::pair<const char*, const char*> needed_options[] = {
    {"model", "model"},         {"width", "width"},     {"image-size", "image_size"},
    {"channels", "channels"},   {"classes", "classes"}, {"precision", "precision"},
    {"bucket-mb", "bucket_mb"}, {"shard", "shard"},     {"shard-group", "shard_group"}};

/// What the study measured. Nothing if the result does not name an option.
std::optional<Config> config_of(const Json& benchmark) {
  Config config = described_config(1);
  for (const auto& [option, field] : needed_options) {
    const auto found = benchmark.find(field);
    if (found == benchmark.end() || found->is_structured() || found->is_null()) return {};
    train_options().set(
        config,
        {.name = option, .value = found->is_string() ? found->get<std::string>() : found->dump()});
  }
  return config;
}

/// The measured point with the fewest nodes.
const ScalingPoint* base_of(const ScalingStudy& study) {
  const ScalingPoint* base = nullptr;
  for (const ScalingPoint& point : study.points) {
    if (point.runs() > 0 && (base == nullptr || point.nodes < base->nodes)) base = &point;
  }
  return base;
}

/// Predicts each measured point from how fast a rank of `base` computes.
void predict(const Config& measured, const LinkOptions& links, const ScalingPoint& base,
             ScalingStudy& study) {
  const Graph graph = described_model(measured);
  const double images_per_second =
      static_cast<double>(base.batch) / static_cast<double>(base.ranks) / base.compute_seconds;
  std::map<std::string, double> ideal;  // by mode: images/s of a node
  for (ScalingPoint& point : study.points) {
    const bool known = point.runs() > 0 && point.ranks % point.nodes == 0 &&
                       point.batch % point.ranks == 0 && base.compute_seconds > 0;
    const bool whole_groups =
        measured.shard_group == 0 || (known && point.ranks % measured.shard_group == 0);
    if (!known || !whole_groups) continue;
    Config config = measured;
    config.batch_size = point.batch / point.ranks;
    const Cluster cluster = cluster_of(links, static_cast<int>(point.nodes),
                                       static_cast<int>(point.ranks / point.nodes));
    const PredictedStep step = predict_step(config, graph, cluster, images_per_second);
    PredictedPoint predicted{.step_seconds = step.total,
                             .exposed_seconds = step.exposed(),
                             .images_per_second = static_cast<double>(point.batch) / step.total};
    const double of_a_node = predicted.images_per_second / static_cast<double>(point.nodes);
    predicted.efficiency = of_a_node / ideal.emplace(point.mode, of_a_node).first->second;
    point.predicted = predicted;
  }
}

void add_predictions(const LinkOptions& links, ScalingStudy& study) {
  const ScalingPoint* const base = base_of(study);
  if (links.link.empty() || base == nullptr) return;
  const std::optional<Config> config = config_of(study.benchmark);
  if (!config) {
    study.notes.emplace_back(
        "nothing is predicted: the results do not name all options of the benchmark, as those of "
        "an earlier version");
    return;
  }
  predict(*config, links, *base, study);
}

}  // namespace

ExitStatus report_scaling(const ScalingReport& report) {
  ScalingStudy study = report::read_scaling_study(report.study);
  add_predictions(report.links, study);
  for (const std::string& note : study.notes) {
    print_warning(fmt::format("{}: {}", report.study, note));
  }
  std::string page;
  if (report::has_plots()) {
    page = report::page_of(study);
    write_text_atomically(report.output, page);
  }
  if (report.json) {
    print_json({{"path", page.empty() ? Json(nullptr) : Json(report.output)},
                {"bytes", page.size()},
                {"study", report::json_of(study)}});
  } else {
    print_out("{}\n{}\n", Lines{report::table_of(study)},
              page.empty() ? "no page: this build cannot write one (dygraphs was not there)"
                           : fmt::format("{}: {:.2f} MB", report.output,
                                         static_cast<double>(page.size()) / 1e6));
  }
  return study.is_complete() ? ExitStatus::ok : ExitStatus::unfit;
}

}  // namespace lockstep::cli
