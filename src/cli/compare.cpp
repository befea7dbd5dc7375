#include "lockstep/core/csv.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/report/comparison.hpp"

#include "command.hpp"
#include "read_runs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::cli {
namespace {

struct CompareArguments {
  bool csv = false;
  bool json = false;
};

OptionTable<CompareArguments> compare_options() {
  OptionTable<CompareArguments> table;
  table.group("Result")
      .add(&CompareArguments::csv, "csv", "print CSV")
      .add(&CompareArguments::json, "json", "print one JSON object");
  return table;
}

/// A figure of the table: its title in text, its name in CSV and JSON.
struct Column {
  const char* title;
  const char* name;
  double report::Figures::*value;
  double scale;
  int digits;
  bool is_rare = false;  ///< left out of text if it is 0 in all runs
};
constexpr std::array columns{
    Column{"step", "step", &report::Figures::step, 1, 0},
    Column{"epochs", "epochs", &report::Figures::epochs, 1, 1},
    Column{"best top-1 %", "best_top1", &report::Figures::best_top1, 100, 2},
    Column{"top-1 %", "top1", &report::Figures::top1, 100, 2},
    Column{"average %", "ema_top1", &report::Figures::ema_top1, 100, 2},
    Column{"loss", "loss", &report::Figures::loss, 1, 4},
    Column{"train loss", "train_loss", &report::Figures::train_loss, 1, 4},
    Column{"images/s", "images_per_second", &report::Figures::images_per_second, 1, 0},
    Column{"hours", "hours", &report::Figures::hours, 1, 2},
    Column{"not finite", "not_finite", &report::Figures::not_finite, 1, 0, /*is_rare=*/true},
    Column{"from step", "first_not_finite", &report::Figures::first_not_finite, 1, 0}};

using Rows = std::vector<std::vector<std::string>>;

/// Columns without values in any run are left out of text.
Rows table_of(const std::vector<report::RunRecord>& runs, bool text) {
  const std::vector<std::string> options = report::differing_options(runs);
  std::vector<report::Figures> figures;
  figures.reserve(runs.size());
  for (const report::RunRecord& run : runs) figures.push_back(report::figures_of(run));
  Rows rows(1, {"run"});
  rows[0].insert(rows[0].end(), options.begin(), options.end());
  for (const report::RunRecord& run : runs) {
    rows.push_back({run.path});
    for (const std::string& name : options) rows.back().push_back(report::option_of(run, name));
  }
  for (const Column& column : columns) {
    const bool known = std::ranges::any_of(figures, [&](const report::Figures& of) {
      const double value = of.*column.value;
      return std::isfinite(value) && !(column.is_rare && value == 0);
    });
    if (text && !known) continue;
    rows[0].emplace_back(text ? column.title : column.name);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const double value = figures[i].*column.value;
      rows[i + 1].push_back(!std::isfinite(value) ? (text ? "-" : "")
                            : text ? fmt::format("{:.{}f}", value * column.scale, column.digits)
                                   : fmt::format("{}", value));
    }
  }
  rows[0].emplace_back("status");
  for (std::size_t i = 0; i < runs.size(); ++i) rows[i + 1].push_back(figures[i].status);
  for (auto& row : rows) std::ranges::transform(row, row.begin(), escape_line);
  return rows;
}

void print_text(const Rows& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      line += last ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    print_out("{}\n", line);
  }
}

void print_csv(const Rows& rows) {
  for (auto row : rows) {
    std::ranges::transform(row, row.begin(), csv_field);
    print_out("{}\n", fmt::join(row, ","));
  }
}

void print_runs(const std::vector<report::RunRecord>& runs) {
  const std::vector<std::string> options = report::differing_options(runs);
  Json array = Json::array();
  for (const report::RunRecord& run : runs) {
    const report::Figures figures = report::figures_of(run);
    Json json{{"run", run.path}, {"options", Json::object()}};
    for (const std::string& name : options) json["options"][name] = report::option_of(run, name);
    for (const Column& column : columns) json[column.name] = figures.*column.value;
    json["status"] = figures.status;
    array.push_back(std::move(json));
  }
  print_json({{"runs", std::move(array)}});
}

}  // namespace

ExitStatus run_compare(Invocation& invocation) {
  if (prints_help(invocation, compare_options(),
                  "usage: lockstep compare RUN... [options]\n\n"
                  "Prints a table of runs: the options that differ, and final figures.\n")) {
    return ExitStatus::ok;
  }
  const auto parsed = compare_options().parse(invocation.arguments, /*allow_positional=*/true);
  const CompareArguments& arguments = parsed.value;
  if (arguments.csv && arguments.json) {
    fail(ExitStatus::usage, "--csv and --json are both given (each is a format); drop one");
  }
  constexpr std::size_t bins = 500;
  const std::vector<report::RunRecord> runs = read_runs(parsed.positional, "compare", bins);
  if (arguments.json) {
    print_runs(runs);
  } else if (arguments.csv) {
    print_csv(table_of(runs, /*text=*/false));
  } else {
    print_text(table_of(runs, /*text=*/true));
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
