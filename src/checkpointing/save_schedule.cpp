#include "lockstep/checkpointing/save_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lockstep {
namespace {

/// Assumed until a save is measured.
constexpr double assumed_cost = 1;

/// The lower one of an even number.
double median(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

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
  if (first_steps_ > 0) {
    --first_steps_;
    return;
  }
  if (!saving_) return keep(steps_, seconds, steps_kept);
  beside_ += seconds;
  ++steps_beside_;
}

void SaveSchedule::end() {
  if (!saving_) return;
  saving_ = false;
  double delay = paused_;
  if (steps_.size() >= steps_to_compare) {
    const double mean =
        std::accumulate(steps_.begin(), steps_.end(), 0.0) / static_cast<double>(steps_.size());
    delay += beside_ - steps_beside_ * mean;
  }
  keep(pauses_, paused_, saves_kept);
  keep(delays_, delay, saves_kept);
  // Steps vary, and beside some saves they happen to be faster than usual.
  cost_ = std::max(median(pauses_), median(delays_));
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
