#include "lockstep/report/page.hpp"

#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/version.hpp"
#include "page_parts.hpp"
#include "run_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

namespace lockstep::report {
namespace {

constexpr std::string_view first_line = "<!doctype html>\n<!-- made by lockstep report -->";

std::string html_of(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

/// JSON for a script element, which no text in it can end, and where none hides another. Bytes that
/// are not UTF-8 are replaced.
std::string script_data(const Json& json) {
  const std::string text = escape_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::string data;
  data.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      data += "\\u003c";
    } else {
      data += c;
    }
  }
  return data;
}

std::string fill_page(const std::string& title, const Json& data) {
  const std::pair<std::string_view, std::string> values[] = {
      {"@TITLE@", html_of(escape_line(title) + " - Lockstep")},
      {"@LIBRARY_STYLE@", std::string(page_parts.library_style)},
      {"@STYLE@", std::string(page_parts.style)},
      {"@LICENCE@", html_of(page_parts.library_licence)},
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
