#include "lockstep/report/page.hpp"

#include "command.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/report/scaling_study.hpp"
#include "read_runs.hpp"
#include "report_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct ReportArguments {
  std::string output = "report.html";
  std::string confusion;
  LinkOptions links;
  bool json = false;
};

OptionTable<ReportArguments> report_options() {
  OptionTable<ReportArguments> table;
  table.group("Result")
      .add(&ReportArguments::output, {.name = "output", .help = "page to write, also -o"})
      .add(&ReportArguments::confusion,
           {.name = "confusion",
            .help = "of one run: file that eval --confusion wrote; none: confusion.csv in the run, "
                    "if there is one"})
      .add(&ReportArguments::json, {.name = "json", .help = "print one JSON object"});
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
    return report_scaling({.study = *study,
                           .output = arguments.output,
                           .links = arguments.links,
                           .json = arguments.json});
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
