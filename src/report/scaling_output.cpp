// A scaling study as text and as JSON.
#include "lockstep/report/scaling_study.hpp"

#include "json_fields.hpp"
#include "run_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

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
