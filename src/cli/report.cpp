#include "lockstep/report/page.hpp"

#include "command.hpp"
#include "link_options.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/scaling_study.hpp"
#include "model_options.hpp"
#include "read_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::string output = "report.html";
  std::string confusion;
  LinkOptions links;  ///< without `link`, nothing is predicted
  bool json = false;
};

OptionTable<ReportArguments> report_options() {
  OptionTable<ReportArguments> table;
  table.group("Result")
      .add(&ReportArguments::output, "output", "page to write, also -o")
      .add(&ReportArguments::confusion, "confusion",
           "of one run: file that eval --confusion wrote; "
           "none: confusion.csv in the run, if there is one")
      .add(&ReportArguments::json, "json", "print one JSON object");
  table.group("Predictions of a scaling study");
  add_link_options(table);
  return table;
}

/// Error(usage) rather than another file replaced.
void check_output(const std::string& path) {
  require_output("--output", path, Existing::replace);
  std::error_code ignored;
  if (!fs::exists(path, ignored) || report::is_page(path)) return;
  fail(ExitStatus::usage,
       "{} exists already and is no page of lockstep report (it would be replaced); choose another "
       "--output",
       path);
}

using report::PredictedPoint;
using report::ScalingPoint;
using report::ScalingStudy;

// What parallel/step_prediction predicts for a scaling study.

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

/// Prints the table of a scaling study and writes its page. ExitStatus::unfit if points are
/// missing.
ExitStatus report_scaling(const std::string& path, const ReportArguments& arguments) {
  ScalingStudy study = report::read_scaling_study(path);
  add_predictions(arguments.links, study);
  for (const std::string& note : study.notes) {
    print_warning(fmt::format("{}: {}", path, note));
  }
  std::string page;
  if (report::has_plots()) {
    page = report::page_of(study);
    write_text_atomically(arguments.output, page);
  }
  if (arguments.json) {
    print_json({{"path", page.empty() ? Json(nullptr) : Json(arguments.output)},
                {"bytes", page.size()},
                {"study", report::json_of(study)}});
  } else {
    print_out("{}\n{}\n", Lines{report::table_of(study)},
              page.empty() ? "no page: this build cannot write one (dygraphs was not there)"
                           : fmt::format("{}: {:.2f} MB", arguments.output,
                                         static_cast<double>(page.size()) / 1e6));
  }
  return study.is_complete() ? ExitStatus::ok : ExitStatus::unfit;
}

}  // namespace

ExitStatus run_report(Invocation& invocation) {
  if (prints_help(
          invocation, report_options(),
          "usage: lockstep report RUN... [options]\n"
          "       lockstep report SCALING-RESULTS [options]\n\n"
          "Writes a page for a browser with the curves, times, memory, events and options of a "
          "run,\n"
          "or a comparison of several runs. The page is one file that needs no network. Of the\n"
          "results of a scaling study, it also prints the table, and returns 1 if points are "
          "missing.\n")) {
    return ExitStatus::ok;
  }
  std::vector<std::string> words = invocation.arguments;
  std::ranges::replace(words, std::string("-o"), std::string("--output"));
  const auto parsed = report_options().parse(words, /*allow_positional=*/true);
  const ReportArguments& arguments = parsed.value;
  check_output(arguments.output);
  if (const auto study = std::ranges::find_if(parsed.positional, report::is_scaling_study);
      study != parsed.positional.end()) {
    if (parsed.positional.size() > 1 || !arguments.confusion.empty()) {
      fail(ExitStatus::usage,
           "{} is a scaling study, which is shown alone; drop the runs and --confusion", *study);
    }
    return report_scaling(*study, arguments);
  }
  if (!arguments.links.link.empty()) {
    fail(ExitStatus::usage, "--link {} without a scaling study (no run is predicted); drop it",
         arguments.links.link);
  }
  if (!report::has_plots()) {
    fail(ExitStatus::usage,
         "this build cannot write pages (dygraphs was not there when it was built); install "
         "libjs-dygraphs, or give CMake -DLOCKSTEP_DYGRAPHS=FILE, and build again");
  }
  if (!arguments.confusion.empty() && parsed.positional.size() > 1) {
    fail(ExitStatus::usage, "--confusion with {} runs (it is shown for one); drop it",
         parsed.positional.size());
  }
  std::vector<report::RunRecord> runs =
      read_runs(parsed.positional, "report", report::bins_for(parsed.positional.size()));
  if (!arguments.confusion.empty()) {
    runs.front().confusion = report::read_confusion(arguments.confusion, report::most_errors);
  }
  const std::string page = report::page_of(runs);
  write_text_atomically(arguments.output, page);
  if (arguments.json) {
    print_json({{"path", arguments.output}, {"runs", runs.size()}, {"bytes", page.size()}});
  } else {
    print_out("{}: {} run{}, {:.2f} MB\n", arguments.output, runs.size(),
              runs.size() == 1 ? "" : "s", static_cast<double>(page.size()) / 1e6);
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
