#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace lockstep::watch {

/// Pure. The tree of the watchdogs' connections: each rank's parent, -1 for rank 0.
///
/// The ranks of a node are below the node's first rank, and only first ranks connect to other
/// nodes. So the loss of a node cuts off no other, unless first ranks are below its own. A rank has
/// at most `fan_out` children on its node, and a first rank as many on other nodes. A parent's
/// number is lower than its child's.
///
/// `nodes`: the node of each rank, in any order.
[[nodiscard]] std::vector<int> tree_parents(std::span<const int> nodes, int fan_out);

/// Pure. The ranks that decide for the job, in turn: rank 0, and if that is lost, its children,
/// those of other nodes first.
[[nodiscard]] std::vector<int> deciders(std::span<const int> nodes, std::span<const int> parents);

/// Pure. In ascending order.
[[nodiscard]] std::vector<int> children_of(int rank, std::span<const int> parents);

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
