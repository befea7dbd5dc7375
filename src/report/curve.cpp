#include "lockstep/report/curve.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::report {

void Range::add(double value) noexcept {
  if (!std::isfinite(value)) return;
  min = std::min(min, value);
  max = std::max(max, value);
  sum += value;
  ++count;
}

void Range::add(const Range& other) noexcept {
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  count += other.count;
}

double Range::mean() const noexcept {
  return count == 0 ? unknown : sum / static_cast<double>(count);
}

Curve::Curve(std::vector<std::string> names, std::size_t most)
    : names_(std::move(names)), most_(std::max<std::size_t>(most, 1)) {}

void Curve::add(const Position& at, std::span<const double> values) {
  if (rows_++ % stride_ == 0) {
    if (positions_.size() == 2 * most_) merge_pairs();
    positions_.emplace_back();
    ranges_.resize(ranges_.size() + names_.size());
  }
  positions_.back() = at;
  Range* const last = ranges_.data() + (ranges_.size() - names_.size());
  for (std::size_t i = 0; i < values.size(); ++i) last[i].add(values[i]);
}

void Curve::merge_pairs() {
  const std::size_t width = names_.size();
  for (std::size_t bin = 0; bin < most_; ++bin) {
    positions_[bin] = positions_[2 * bin + 1];
    for (std::size_t i = 0; i < width; ++i) {
      Range merged = ranges_[2 * bin * width + i];
      merged.add(ranges_[(2 * bin + 1) * width + i]);
      ranges_[bin * width + i] = merged;
    }
  }
  positions_.resize(most_);
  ranges_.resize(most_ * width);
  stride_ *= 2;
}

}  // namespace lockstep::report
