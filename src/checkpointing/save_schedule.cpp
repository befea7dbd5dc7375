#include "lockstep/checkpointing/save_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

/// Assumed until a save is measured.
constexpr double assumed_cost = 1;

void keep(std::deque<double>& values, double value, std::size_t most) {
  values.push_back(value);
  if (values.size() > most) values.pop_front();
}

}  // namespace

void SaveSchedule::begin(double paused) noexcept {
  saving_ = true;
  paused_ = paused;
  beside_ = steps_beside_ = 0;
}

void SaveSchedule::step_took(double seconds) {
  if (!saving_) return keep(steps_, seconds, steps_kept);
  beside_ += seconds;
  ++steps_beside_;
}

void SaveSchedule::end() {
  if (!saving_) return;
  saving_ = false;
  double slower = 0;
  if (steps_.size() >= steps_to_compare) {
    const double mean =
        std::accumulate(steps_.begin(), steps_.end(), 0.0) / static_cast<double>(steps_.size());
    slower = std::max(0.0, beside_ - steps_beside_ * mean);
  }
  keep(costs_, paused_ + slower, saves_kept);
  std::vector<double> sorted(costs_.begin(), costs_.end());
  const auto median = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, median);
  cost_ = *median;
}

double SaveSchedule::interval() const noexcept {
  const double best = std::sqrt(2 * cost_.value_or(assumed_cost) * failure_seconds_);
  const double interval = std::max(limits_.shortest, best);
  return cost_ ? interval : std::min(limits_.longest_first, interval);
}

double SaveSchedule::epoch_end_interval() const noexcept {
  if (!cost_) return 0;
  return std::max(limits_.between_epochs, *cost_ / limits_.epoch_ends_share);
}

}  // namespace lockstep
