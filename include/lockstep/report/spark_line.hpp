#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep::report {

/// At most `columns` values: if there are more, means of adjacent ones. NaN is no value; the mean
/// of none is NaN.
[[nodiscard]] std::vector<double> resample(std::span<const double> values, std::size_t columns);

enum class Charset { ascii, unicode };

/// A bar chart of `rows` lines, the top one first, with a column for each value, scaled from the
/// least to the greatest value. A value that is not finite is an x.
[[nodiscard]] std::vector<std::string> spark_lines(std::span<const double> values, std::size_t rows,
                                                   Charset charset);

}  // namespace lockstep::report
