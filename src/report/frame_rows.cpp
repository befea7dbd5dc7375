#include "frame_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace lockstep::report {
namespace {

constexpr std::size_t value_columns = 10;
constexpr int least_important = 9;

std::size_t remaining(std::size_t columns, std::size_t taken) {
  return columns - std::min(columns, taken);
}

std::string brief_number(double value) {
  return std::abs(value) < 1000 ? fmt::format("{:.3g}", value) : grouped(value);
}

void append_chart(const FrameRow& row, std::size_t height, Charset charset,
                  std::vector<StyledLine>& lines) {
  const std::vector<std::string> chart = spark_lines(row.chart, height, charset);
  const std::size_t indent = columns_of(row.line);
  for (std::size_t i = 0; i < height; ++i) {
    StyledLine line;
    if (i == 0) {
      line = row.line;
    } else if (i + 1 == height) {
      line = cut(row.scale, indent);
    }
    line.push_back({.text = std::string(indent - columns_of(line), ' ')});
    line.push_back({.text = chart[i], .style = row.style});
    lines.push_back(std::move(line));
  }
}

}  // namespace

std::string grouped(double value) {
  if (std::isnan(value)) return "?";
  std::string text = fmt::format("{:.0f}", value);
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  for (std::size_t i = text.size(); i > first + 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

FrameRows::FrameRows(FrameSize size, Charset charset)
    : size_(size), charset_(charset), label_columns_(size.columns < 60 ? 9 : 11) {}

std::size_t FrameRows::chart_columns() const noexcept {
  return remaining(size_.columns, label_columns_ + value_columns + 2);
}

std::string FrameRows::safe(const std::string& text) const {
  return printable(text, charset_);
}

Span FrameRows::label(const std::string& name) const {
  return {.text = fmt::format("{:<{}}", name, label_columns_), .style = Style::dim};
}

std::string FrameRows::value(const std::string& text) {
  return fmt::format("{:>{}}", text, value_columns);
}

void FrameRows::add(int importance, StyledLine line) {
  rows_.push_back({.importance = importance, .line = std::move(line)});
}

void FrameRows::add_blank() {
  add(least_important, {});
}

void FrameRows::add_fact(int importance, const std::string& name,
                         const std::vector<std::string>& texts, Style style) {
  const std::size_t most = remaining(size_.columns, label_columns_);
  const auto fits = std::ranges::find_if(
      texts, [&](const std::string& text) { return columns_of(text) <= most; });
  add(importance, {label(name), {fits == texts.end() ? texts.back() : *fits, style}});
}

void FrameRows::add_chart(int importance, const std::string& name, const std::string& text,
                          std::vector<double> values, ChartOptions options) {
  FrameRow row;
  row.importance = importance;
  row.line = {label(name), {value(text) + "  ", options.value_style}};
  Range range;
  for (const double each : values) range.add(each);
  if (range.count > 0) {
    row.scale = {
        {fmt::format("  {} to {}", brief_number(range.min), brief_number(range.max)), Style::dim}};
  }
  row.chart = std::move(values);
  row.most_rows = range.min < range.max ? options.most_rows : 1;
  row.style = options.style;
  rows_.push_back(std::move(row));
}

std::vector<StyledLine> FrameRows::arrange() && {
  leave_out_rows();
  const std::vector<std::size_t> heights = this->heights();
  std::vector<StyledLine> lines;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].chart.empty()) {
      lines.push_back(std::move(rows_[i].line));
    } else {
      append_chart(rows_[i], heights[i], charset_, lines);
    }
  }
  for (StyledLine& line : lines) line = cut(std::move(line), size_.columns);
  return lines;
}

void FrameRows::leave_out_rows() {
  while (size_.rows > 0 && rows_.size() > size_.rows) {
    const auto least = std::max_element(rows_.rbegin(), rows_.rend(),
                                        [](const FrameRow& left, const FrameRow& right) {
                                          return left.importance < right.importance;
                                        });
    rows_.erase(std::next(least).base());
  }
}

/// Lines of each row: charts grow in turn.
std::vector<std::size_t> FrameRows::heights() const {
  std::vector<std::size_t> heights(rows_.size(), 1);
  for (std::size_t used = rows_.size(), before = 0; used < size_.rows && used != before;) {
    before = used;
    for (std::size_t i = 0; i < rows_.size() && used < size_.rows; ++i) {
      if (heights[i] >= rows_[i].most_rows) continue;
      ++heights[i];
      ++used;
    }
  }
  return heights;
}

}  // namespace lockstep::report
