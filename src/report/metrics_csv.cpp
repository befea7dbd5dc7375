#include "lockstep/report/metrics_csv.hpp"

#include "lockstep/core/csv.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/report/run_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
using Fields = std::vector<std::pair<std::string, std::string>>;

void flatten(const std::string& path, const Json& value, Fields& fields) {
  if (!value.is_object()) {
    const bool is_text = value.is_string();
    fields.emplace_back(path, value.is_null() ? ""
                              : is_text       ? value.get<std::string>()
                                              : value.dump());
    return;
  }
  for (const auto& [name, member] : value.items()) {
    flatten(path.empty() ? name : fmt::format("{}.{}", path, name), member, fields);
  }
}

/// Calls `use` with the values of each event. Returns the number of damaged lines. A last line
/// without its end may still be being written.
template <typename Use>
std::size_t for_each_event(const FilePath& path, const std::string& kind, Use use) {
  InputStream file = open_input_stream(path, "give the --run-dir of a training");
  std::size_t damaged = 0;
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object() || !event.contains("event")) {
      if (!line.empty() && !file.eof()) ++damaged;
      continue;
    }
    if (!kind.empty() && event["event"] != kind) continue;
    Fields fields;
    flatten("", event, fields);
    use(fields);
  }
  return damaged;
}

}  // namespace

std::size_t write_metrics_csv(const std::string& run, const std::string& kind, std::ostream& out) {
  require_run(run);
  const FilePath path = OpenDirectory(run) / "metrics.jsonl";
  std::vector<std::string> names;
  std::map<std::string, std::size_t> columns;
  for_each_event(path, kind, [&](const Fields& fields) {
    for (const auto& [name, value] : fields) {
      if (columns.emplace(name, names.size()).second) names.push_back(csv_field(escape_line(name)));
    }
  });
  if (names.empty()) {
    fail(ExitStatus::usage, "{} has no event {}(nothing to export); see lockstep inspect {}",
         path.text(), kind.empty() ? "" : "'" + kind + "' ", run);
  }
  out << fmt::format("{}\n", fmt::join(names, ","));
  return for_each_event(path, kind, [&](const Fields& fields) {
    std::vector<std::string> row(names.size());
    for (const auto& [name, value] : fields) {
      // The run may have written more since the first pass.
      const auto column = columns.find(name);
      if (column != columns.end()) row[column->second] = csv_field(escape_line(value));
    }
    out << fmt::format("{}\n", fmt::join(row, ","));
  });
}

}  // namespace lockstep::report
