#include "lockstep/report/metrics_csv.hpp"

#include "lockstep/core/line_follower.hpp"

#include "lockstep/core/csv.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/report/run_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>
#include <vector>

namespace lockstep::report {
namespace {

/// A training records about a hundred different fields.
constexpr std::size_t most_columns = 10'000;

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
  std::size_t damaged = 0;
  const auto read = [&](std::string_view line) {
    const Json event = parse_json(line).value_or(Json());
    if (!event.is_object() || !event.contains("event")) return false;
    if (!kind.empty() && event["event"] != kind) return true;
    Fields fields;
    flatten("", event, fields);
    use(fields);
    return true;
  };
  LineFollower lines(path);
  static_cast<void>(lines.read([&](std::string_view line) {
    if (!line.empty() && !read(line)) ++damaged;
  }));
  read(lines.rest());
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
      if (columns.emplace(name, names.size()).second) names.push_back(csv_field(name));
    }
    if (names.size() > most_columns) {
      fail(ExitStatus::bad_input,
           "{} has events of more than {} different fields in all (a table would be too wide); "
           "restore the file",
           path.text(), most_columns);
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
      if (column != columns.end()) row[column->second] = csv_field(value);
    }
    out << fmt::format("{}\n", fmt::join(row, ","));
  });
}

}  // namespace lockstep::report
