#pragma once

#include <algorithm>
#include <span>

namespace lockstep::watch {

/// When a rank may decide that the job ends. Rank 0 decides; if it is lost or stopped, the others
/// do so in turn, some time apart, since one decision is enough and ends the job.
class Turn final {
 public:
  Turn() = default;
  /// `deciders`: the ranks in turn, rank 0 first.
  Turn(int rank, std::span<const int> deciders)
      : place_(static_cast<int>(std::ranges::find(deciders, rank) - deciders.begin())) {}

  /// Whether it replaces rank 0 at once.
  [[nodiscard]] bool is_next() const noexcept { return place_ == 1; }
  /// Seconds to wait before it ends the job because rank 0 is lost. If rank 0 is only silent, this
  /// rank's own node may be the one that is cut off, so rank 0 comes first.
  [[nodiscard]] double seconds_to_wait(bool silent) const noexcept {
    constexpr double apart = 5;
    return apart * (std::min(place_, 9) - (silent ? 0 : 1));
  }
  /// Factor of the limit after which it decides in place of a rank 0 that is stopped.
  [[nodiscard]] double patience() const noexcept { return 1 + 0.1 * std::min(place_ - 1, 5); }

 private:
  int place_ = 0;
};

}  // namespace lockstep::watch
