#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/report/metrics_csv.hpp"

#include <fmt/format.h>

#include <iostream>

namespace lockstep::cli {
namespace {

struct ExportMetricsArguments {
  bool csv = true;
  std::string event;
};

OptionTable<ExportMetricsArguments> export_metrics_options() {
  OptionTable<ExportMetricsArguments> table;
  table.group("Result")
      .add(&ExportMetricsArguments::csv, "csv", "print CSV, the only format")
      .add(&ExportMetricsArguments::event, "event",
           "print only events of this kind, such as step or eval");
  return table;
}

}  // namespace

ExitStatus run_export_metrics(Invocation& invocation) {
  if (prints_help(
          invocation, export_metrics_options(),
          "usage: lockstep export-metrics RUN [options]\n\n"
          "Prints the metrics of a run as a table: a row for each event of metrics.jsonl.\n")) {
    return ExitStatus::ok;
  }
  const auto parsed =
      export_metrics_options().parse(invocation.arguments, /*allow_positional=*/true);
  const std::string& run = only_argument(parsed.positional, "export-metrics", "run directory");
  if (!parsed.value.csv) fail(ExitStatus::usage, "--no-csv (CSV is the only format); drop it");
  const std::size_t damaged = report::write_metrics_csv(run, parsed.value.event, std::cout);
  if (damaged > 0) {
    print_warning(fmt::format("{} damaged line{} of metrics.jsonl left out", damaged,
                              damaged == 1 ? "" : "s"));
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
