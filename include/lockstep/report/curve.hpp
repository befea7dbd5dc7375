#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace lockstep::report {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// A point of a run, in the units of a plot's x axis.
struct Position {
  double step = 0;
  double samples = unknown;
  double hours = unknown;  ///< in jobs, without the time between them
};

/// Values of one series over adjacent rows.
struct Range {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  std::int64_t count = 0;

  void add(double value) noexcept;
  void add(const Range& other) noexcept;
  [[nodiscard]] double mean() const noexcept;
};

/// Rows of several series in bounded memory: once there are twice `most` bins, adjacent ones are
/// merged in pairs. Every bin keeps the extremes and the mean of its rows.
class Curve final {
 public:
  Curve(std::vector<std::string> names, std::size_t most);

  /// `values` in the order of names(); NaN is no value.
  void add(const Position& at, std::span<const double> values);

  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] std::size_t bins() const noexcept { return positions_.size(); }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  /// Rows of a bin; the last bin may have fewer.
  [[nodiscard]] std::int64_t stride() const noexcept { return stride_; }
  /// Of the last row of a bin.
  [[nodiscard]] const Position& position(std::size_t bin) const { return positions_[bin]; }
  [[nodiscard]] const Range& range(std::size_t bin, std::size_t series) const {
    return ranges_[bin * names_.size() + series];
  }

 private:
  void merge_pairs();

  std::vector<std::string> names_;
  std::size_t most_;
  std::int64_t rows_ = 0;
  std::int64_t stride_ = 1;
  std::vector<Position> positions_;
  std::vector<Range> ranges_;  ///< by bin, then by series
};

}  // namespace lockstep::report
