#include "lockstep/report/page.hpp"

#include "json_fields.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/core/parse_number.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/report/comparison.hpp"
#include "page_parts.hpp"

#include <fmt/format.h>
#include <boost/algorithm/string/replace.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string_view>
#include <utility>

namespace lockstep::report {
namespace {

constexpr std::string_view first_line = "<!doctype html>\n<!-- made by lockstep report -->";

std::string html_of(std::string text) {
  boost::replace_all(text, "&", "&amp;");
  boost::replace_all(text, "<", "&lt;");
  boost::replace_all(text, ">", "&gt;");
  return boost::replace_all_copy(text, "\"", "&quot;");
}

/// JSON for a script element, which no text in it can end, and where none hides another. Bytes that
/// are not UTF-8 are replaced.
std::string script_data(const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return boost::replace_all_copy(escape_json(text), "<", "\\u003c");
}

/// Six digits suffice for a plot of merged values; single values stay as they are.
double rounded(double value) {
  if (!std::isfinite(value)) return value;
  return parse_number<double>(fmt::format("{:.6g}", value)).value_or(value);
}

template <typename Value>
Json column(const Curve& curve, Value value) {
  const bool merged = curve.stride() > 1;
  Json array = Json::array();
  for (std::size_t bin = 0; bin < curve.bins(); ++bin) {
    array.push_back(json_of(merged ? rounded(value(bin)) : value(bin)));
  }
  return array;
}

bool has_values(const Curve& curve, std::size_t series) {
  for (std::size_t bin = 0; bin < curve.bins(); ++bin) {
    if (curve.range(bin, series).count > 0) return true;
  }
  return false;
}

/// {rows, stride, step: [...], samples: [...], hours: [...], series: {loss: {mean, min, max}}};
/// bins of one row have no min and max.
Json curve_json(const Curve& curve) {
  Json json{{"rows", curve.rows()}, {"stride", curve.stride()}};
  json["step"] = column(curve, [&](std::size_t bin) { return curve.position(bin).step; });
  json["samples"] = column(curve, [&](std::size_t bin) { return curve.position(bin).samples; });
  json["hours"] =
      column(curve, [&](std::size_t bin) { return rounded(curve.position(bin).hours); });
  Json all = Json::object();
  for (std::size_t i = 0; i < curve.names().size(); ++i) {
    if (!has_values(curve, i)) continue;
    const auto range = [&](std::size_t bin) -> const Range& { return curve.range(bin, i); };
    Json series{{"mean", column(curve, [&](std::size_t bin) { return range(bin).mean(); })}};
    // Phases are stacked, which only means can be.
    if (curve.stride() > 1 && !curve.names()[i].starts_with("seconds.")) {
      const auto extreme = [&](std::size_t bin, double Range::*which) {
        return range(bin).count == 0 ? unknown : range(bin).*which;
      };
      series["min"] = column(curve, [&](std::size_t bin) { return extreme(bin, &Range::min); });
      series["max"] = column(curve, [&](std::size_t bin) { return extreme(bin, &Range::max); });
    }
    all[curve.names()[i]] = std::move(series);
  }
  json["series"] = std::move(all);
  return json;
}

Json position_json(const Position& at) {
  return {
      {"step", json_of(at.step)}, {"samples", json_of(at.samples)}, {"hours", json_of(at.hours)}};
}

Json sessions_json(const RunRecord& run) {
  Json array = Json::array();
  for (const Session& session : run.sessions) {
    Json json{{"at", position_json(session.at)}, {"event", session.event}};
    json["end"] = session.end ? position_json(*session.end) : Json(nullptr);
    json["reason"] = session.reason;
    array.push_back(std::move(json));
  }
  return array;
}

Json slow_ranks_json(const RunRecord& run) {
  Json array = Json::array();
  for (const SlowRank& slow : run.slow_ranks) {
    array.push_back({{"host", slow.host},
                     {"rank", slow.rank},
                     {"reports", slow.reports},
                     {"factor", json_of(slow.worst)},
                     {"epoch", json_of(slow.last_epoch)},
                     {"data", json_of(slow.data)},
                     {"compute", json_of(slow.compute)}});
  }
  return array;
}

Json confusion_json(const Confusion& confusion) {
  Json cells = Json::array();
  for (const Confusion::Cell& cell : confusion.errors) {
    cells.insert(cells.end(), {cell.truth, cell.predicted, cell.count});
  }
  return {{"classes", confusion.classes},
          {"samples", confusion.samples},
          {"hits", confusion.hits},
          {"errors", std::move(cells)},
          {"dropped", confusion.dropped}};
}

Json figures_json(const Figures& figures) {
  return {{"status", figures.status},
          {"step", json_of(figures.step)},
          {"epochs", json_of(figures.epochs)},
          {"best_top1", json_of(figures.best_top1)},
          {"best_step", json_of(figures.best_step)},
          {"top1", json_of(figures.top1)},
          {"ema_top1", json_of(figures.ema_top1)},
          {"loss", json_of(figures.loss)},
          {"train_loss", json_of(figures.train_loss)},
          {"images_per_second", json_of(figures.images_per_second)},
          {"hours", json_of(figures.hours)}};
}

Json run_json(const RunRecord& run) {
  Json json{{"name", run.name},
            {"path", run.path},
            {"figures", figures_json(figures_of(run))},
            {"options", run.options},
            {"epoch_samples", json_of(run.epoch_samples)},
            {"peak_rss", json_of(run.peak_rss)},
            {"not_finite", run.not_finite},
            {"first_not_finite", json_of(run.first_not_finite)},
            {"notes", run.notes},
            {"steps", curve_json(run.steps)},
            {"epochs", curve_json(run.epochs)},
            {"evaluations", curve_json(run.evaluations)},
            {"checkpoints", curve_json(run.checkpoints)},
            {"stragglers", curve_json(run.stragglers)},
            {"sessions", sessions_json(run)},
            {"slow_ranks", slow_ranks_json(run)}};
  if (run.confusion) json["confusion"] = confusion_json(*run.confusion);
  return json;
}

Json metrics_json() {
  Json array = Json::array();
  for (const Metric& metric : metric_table) {
    array.push_back({{"name", metric.name}, {"title", metric.title}});
  }
  return array;
}

/// The data of the page, which its scripts read.
Json page_data(std::span<const RunRecord> runs) {
  Json all = Json::array();
  for (const RunRecord& run : runs) all.push_back(run_json(run));
  return {{"version", version()},
          {"metrics", metrics_json()},
          {"defaults", parse_options(print_config(Config{}))},
          {"differing", differing_options(runs)},
          {"groups", same_configuration(runs)},
          {"runs", std::move(all)}};
}

std::string fill_page(const std::string& title, const Json& data) {
  const std::pair<std::string_view, std::string> values[] = {
      {"@TITLE@", html_of(escape_line(title) + " - Lockstep")},
      {"@LIBRARY_STYLE@", std::string(page_parts.library_style)},
      {"@STYLE@", std::string(page_parts.style)},
      {"@LICENCE@", html_of(std::string(page_parts.library_licence))},
      {"@DATA@", script_data(data)},
      {"@LIBRARY@", std::string(page_parts.library)},
      {"@SCRIPT@", std::string(page_parts.script)}};
  std::string page;
  std::string_view rest = page_parts.page;
  // The marks are in this order in the page, so that no value is searched for marks.
  for (const auto& [mark, value] : values) {
    const std::size_t at = rest.find(mark);
    if (at == std::string_view::npos) continue;
    page.append(rest.substr(0, at)).append(value);
    rest.remove_prefix(at + mark.size());
  }
  return page.append(rest);
}

}  // namespace

bool has_plots() noexcept {
  return !page_parts.library.empty();
}

std::size_t bins_for(std::size_t runs) noexcept {
  return std::clamp<std::size_t>(3000 / std::max<std::size_t>(runs, 1), 50, 1000);
}

std::string page_of(std::span<const RunRecord> runs) {
  const std::string title =
      runs.size() == 1 ? runs.front().name : fmt::format("{} runs", runs.size());
  return fill_page(title, page_data(runs));
}

std::string page_of(const ScalingStudy& study) {
  return fill_page(study.name, {{"version", version()}, {"study", json_of(study)}});
}

bool is_page(const std::string& path) {
  InputStream file = open_input_stream(path);
  std::string begin(first_line.size(), '\0');
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin == first_line;
}

}  // namespace lockstep::report
