#pragma once

#include "lockstep/core/error.hpp"
#include "rank_report.hpp"

#include <optional>
#include <set>
#include <span>
#include <string>

namespace lockstep::watch {

/// Why a job ends.
struct Ending {
  std::string text;
  ExitStatus status = ExitStatus::internal;
  int lost = -1;  ///< the rank whose loss it is; -1: another reason
};

/// A rank that cannot go on because of an error.
struct Failure {
  int rank = 0;
  ExitStatus status = ExitStatus::internal;
  std::string text;
};

/// The failures of ranks of a job. When a rank is lost, the others fail one after another; the job
/// ends with one message, which names the lost rank if there is one.
class Failures final {
 public:
  /// `now`: seconds.
  void add(const Failure& failure, double now);
  [[nodiscard]] bool any() const noexcept { return !ranks_.empty(); }
  /// Seconds since the first failure.
  [[nodiscard]] double age(double now) const noexcept { return any() ? now - since_ : 0; }
  /// The reason to end the job: the first failure. nullopt: there is none, or it may be the
  /// consequence of a loss that is not known yet.
  [[nodiscard]] std::optional<Ending> ending(std::span<const RankReport> reports,
                                             std::span<const std::string> names, double now) const;

 private:
  std::set<int> ranks_;
  Failure first_;
  double since_ = 0;
};

}  // namespace lockstep::watch
