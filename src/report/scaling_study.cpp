#include "lockstep/report/scaling_study.hpp"

#include "json_fields.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/report/run_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;
using Row = std::vector<std::string>;

/// A line of the list of points.
struct Repetition {
  std::string mode;
  std::int64_t nodes = 0;
  std::int64_t number = 0;

  [[nodiscard]] std::string name() const { return fmt::format("{}-{:04}-{}", mode, nodes, number); }
};

std::vector<Repetition> read_list(const FilePath& at) {
  const std::string& path = at.text();
  std::istringstream lines(read_text_file(at));
  std::vector<Repetition> list;
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    ++count;
    std::istringstream words(line);
    Repetition read;
    std::string more;
    const bool whole = words >> read.mode >> read.nodes >> read.number && !(words >> more);
    const bool known = read.mode == "weak" || read.mode == "strong";
    if (!whole || !known || read.nodes < 1 || read.number < 1) {
      fail(ExitStatus::bad_input,
           "{}, line {} cannot be read (not weak or strong, nodes and repetition); give the "
           "results of slurm/scaling.sbatch",
           path, count);
    }
    list.push_back(std::move(read));
  }
  return list;
}

bool is_count(const Json& json, const char* name) {
  const double value = number(json, name);
  return value >= 1 && value <= 1e15;
}

/// A result of `lockstep bench step --json`; null if it is absent or not whole.
Json read_result(const FilePath& path, std::vector<std::string>& notes) {
  if (!path.exists()) return nullptr;
  Json json = parse_json(read_text_file(path)).value_or(Json());
  const bool whole = json.is_object() && number(json, "images_per_second") > 0 &&
                     number(json, "step_seconds_median") > 0 &&
                     number(json, "exposed_communication_seconds") >= 0 &&
                     is_count(json, "ranks") && is_count(json, "global_batch");
  if (whole) return json;
  notes.push_back(fmt::format("{} is no whole result of lockstep bench step",
                              fs::path(path.text()).filename().string()));
  return nullptr;
}

void summarize(const std::vector<Json>& results, ScalingPoint& point) {
  point.ranks = static_cast<std::int64_t>(number(results.front(), "ranks"));
  point.batch = static_cast<std::int64_t>(number(results.front(), "global_batch"));
  const auto median_of = [&](auto value) {
    std::vector<double> values;
    values.reserve(results.size());
    for (const Json& result : results) values.push_back(value(result));
    return spread_of(std::move(values));
  };
  const auto step = [](const Json& result) { return number(result, "step_seconds_median"); };
  const auto exposed = [](const Json& result) {
    return number(result, "exposed_communication_seconds");
  };
  point.images_per_second =
      median_of([](const Json& result) { return number(result, "images_per_second"); });
  point.step_seconds = median_of(step).median;
  point.exposed_seconds = median_of(exposed).median;
  point.hidden_seconds = median_of([](const Json& result) {
                           return number(result, "hidden_communication_seconds");
                         }).median;
  point.compute_seconds =
      median_of([&](const Json& result) { return step(result) - exposed(result); }).median;
  point.exposed_share =
      median_of([&](const Json& result) { return exposed(result) / step(result); }).median;
}

/// Points must be in order of nodes.
void add_efficiency(std::vector<ScalingPoint>& points) {
  std::map<std::string, double> ideal;  // by mode: images/s of a node
  for (ScalingPoint& point : points) {
    if (point.runs() == 0) continue;
    const auto nodes = static_cast<double>(point.nodes);
    const Spread& rate = point.images_per_second;
    const double base = ideal.emplace(point.mode, rate.median / nodes).first->second;
    point.efficiency = {.median = rate.median / nodes / base,
                        .least = rate.least / nodes / base,
                        .greatest = rate.greatest / nodes / base};
  }
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

Row row_of(const ScalingPoint& point, bool predicted) {
  Row row{point.mode, std::to_string(point.nodes)};
  if (point.runs() == 0) {
    row.resize(predicted ? 10 : 8, "missing");
  } else {
    const Spread& rate = point.images_per_second;
    row.insert(row.end(), {std::to_string(point.ranks), std::to_string(point.batch),
                           fmt::format("{:.1f}", rate.median),
                           fmt::format("{:.1f}-{:.1f}", rate.least, rate.greatest),
                           percent(point.efficiency.median), percent(point.exposed_share)});
    if (point.predicted) {
      const double expected = point.predicted->images_per_second;
      row.insert(row.end(), {fmt::format("{:.1f}", expected), percent(rate.median / expected)});
    } else if (predicted) {
      row.insert(row.end(), 2, "-");
    }
  }
  row.push_back(fmt::format("{} of {}", point.runs(), point.wanted));
  return row;
}

Json spread_json(const Spread& spread) {
  return {{"median", json_of(spread.median)},
          {"least", json_of(spread.least)},
          {"greatest", json_of(spread.greatest)}};
}

Json point_json(const ScalingPoint& point) {
  Json json{{"mode", point.mode},
            {"nodes", point.nodes},
            {"runs", point.runs()},
            {"wanted", point.wanted},
            {"missing", point.missing},
            {"ranks", point.ranks == 0 ? Json(nullptr) : Json(point.ranks)},
            {"global_batch", point.batch == 0 ? Json(nullptr) : Json(point.batch)},
            {"images_per_second", spread_json(point.images_per_second)},
            {"efficiency", spread_json(point.efficiency)},
            {"step_seconds", json_of(point.step_seconds)},
            {"compute_seconds", json_of(point.compute_seconds)},
            {"exposed_communication_seconds", json_of(point.exposed_seconds)},
            {"hidden_communication_seconds", json_of(point.hidden_seconds)},
            {"exposed_share", json_of(point.exposed_share)},
            {"predicted", nullptr}};
  if (point.predicted) {
    json["predicted"] = {
        {"step_seconds", json_of(point.predicted->step_seconds)},
        {"exposed_communication_seconds", json_of(point.predicted->exposed_seconds)},
        {"images_per_second", json_of(point.predicted->images_per_second)},
        {"efficiency", json_of(point.predicted->efficiency)}};
  }
  return json;
}

bool has_predictions(const ScalingStudy& study) {
  return std::ranges::any_of(study.points,
                             [](const ScalingPoint& p) { return p.predicted.has_value(); });
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return {};
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .least = values.front(), .greatest = values.back()};
}

bool ScalingStudy::is_complete() const noexcept {
  return std::ranges::all_of(points, [](const ScalingPoint& p) { return p.missing.empty(); });
}

bool is_scaling_study(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(path) / "points", ignored);
}

ScalingStudy read_scaling_study(const std::string& path) {
  ScalingStudy study;
  study.path = path;
  study.name = run_name(path);
  const OpenDirectory directory(path);
  std::map<std::pair<bool, std::int64_t>, std::vector<Repetition>> points;
  for (Repetition& one : read_list(directory / "points")) {
    points[{one.mode == "strong", one.nodes}].push_back(std::move(one));
  }
  for (const auto& [key, repetitions] : points) {
    ScalingPoint point;
    point.mode = repetitions.front().mode;
    point.nodes = key.second;
    point.wanted = static_cast<std::int64_t>(repetitions.size());
    std::vector<Json> results;
    for (const Repetition& one : repetitions) {
      Json result = read_result(directory / (one.name() + ".json"), study.notes);
      if (result.is_null()) {
        point.missing.push_back(one.name());
      } else {
        results.push_back(std::move(result));
      }
    }
    if (!results.empty()) {
      summarize(results, point);
      if (study.benchmark.is_null()) study.benchmark = std::move(results.front());
    }
    study.points.push_back(std::move(point));
  }
  add_efficiency(study.points);
  return study;
}

std::string title_of(const ScalingStudy& study) {
  if (study.benchmark.is_null()) return "nothing measured";
  return fmt::format("{}, {}, {}", text(study.benchmark, "model"),
                     text(study.benchmark, "precision"), text(study.benchmark, "engine"));
}

std::string table_of(const ScalingStudy& study) {
  const bool predicted = has_predictions(study);
  std::vector<Row> rows{
      {"mode", "nodes", "ranks", "batch", "images/s", "min-max", "efficiency", "exposed comm."}};
  if (predicted) rows[0].insert(rows[0].end(), {"predicted", "measured/predicted"});
  rows[0].emplace_back("runs");
  for (const ScalingPoint& point : study.points) rows.push_back(row_of(point, predicted));
  std::vector<std::size_t> widths(rows[0].size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table = title_of(study) + "\n\n";
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      table += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", row[i], widths[i]);
    }
    table += '\n';
  }
  return table;
}

Json json_of(const ScalingStudy& study) {
  Json points = Json::array();
  for (const ScalingPoint& point : study.points) points.push_back(point_json(point));
  return {{"name", study.name},
          {"path", study.path},
          {"benchmark", study.benchmark},
          {"notes", study.notes},
          {"points", std::move(points)}};
}

}  // namespace lockstep::report
