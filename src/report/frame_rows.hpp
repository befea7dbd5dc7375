#pragma once

#include "lockstep/report/status_frame.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::report {

/// A line of a frame, or a chart of one or more.
struct FrameRow {
  int importance = 0;  ///< rows of the greatest number are left out first
  StyledLine line;     ///< of a chart: what is left of its first line
  std::vector<double> chart = {};
  StyledLine scale = {};       ///< left of the chart's last line, if it has several
  std::size_t most_rows = 1;   ///< of the chart
  Style style = Style::plain;  ///< of the chart
};

/// "15,012"
[[nodiscard]] std::string grouped(double value);

/// The rows of a frame, from top to bottom.
class FrameRows final {
 public:
  FrameRows(FrameSize size, Charset charset);

  [[nodiscard]] std::size_t columns() const noexcept { return size_.columns; }
  [[nodiscard]] Charset charset() const noexcept { return charset_; }
  /// Columns of charts, which are right of a label and a value.
  [[nodiscard]] std::size_t chart_columns() const noexcept;
  /// printable() in the frame's character set.
  [[nodiscard]] std::string safe(const std::string& text) const;
  [[nodiscard]] Span label(const std::string& name) const;
  /// Right-aligned.
  [[nodiscard]] static std::string value(const std::string& text);

  void add(int importance, StyledLine line);
  void add_blank();
  /// A label and the first of `texts`, which get shorter, that fits; else the last one, cut.
  void add_fact(int importance, const std::string& name, const std::vector<std::string>& texts,
                Style style = Style::plain);
  struct ChartOptions {
    std::size_t most_rows = 1;
    Style style = Style::plain;
    Style value_style = Style::plain;
  };
  /// A label, `text` and `values` as a chart: at most chart_columns().
  void add_chart(int importance, const std::string& name, const std::string& text,
                 std::vector<double> values, ChartOptions options);

  /// Leaves rows out, or makes charts higher, until the frame has its size.
  [[nodiscard]] std::vector<StyledLine> arrange() &&;

 private:
  void leave_out_rows();
  [[nodiscard]] std::vector<std::size_t> heights() const;

  FrameSize size_;
  Charset charset_;
  std::size_t label_columns_;
  std::vector<FrameRow> rows_;
};

}  // namespace lockstep::report
