#pragma once

#include "rank_report.hpp"

#include <optional>
#include <span>
#include <string>

namespace lockstep::watch {

struct JudgeOptions {
  double limit = 0;                   ///< seconds without progress of any rank
  std::span<const int> parents = {};  ///< by rank: its parent in the tree of watchdogs
};

/// Factor by which start-up and a run's first step may take longer.
constexpr double unhurried_factor = 3;

/// "forward of step 12", "the all-reduce of bucket 2, in communication of step 12"
[[nodiscard]] std::string describe(const PhaseBoard::Reading& reading);
/// "rank 2 (node7) is gone (its process ended; last heard of in forward of step 12) ...". `silent`:
/// its node does not answer.
[[nodiscard]] std::string describe_loss(const RankReport& lost, const std::string& name,
                                        bool silent);

/// Seconds since any rank last made progress.
[[nodiscard]] double idle_seconds(std::span<const RankReport> reports) noexcept;

/// Pure. If no rank made progress for the limit, returns a text that says who is late, in which
/// phase, since when, and what the others wait for. `names` by rank: "rank 3 (node7)".
[[nodiscard]] std::optional<std::string> judge(std::span<const RankReport> reports,
                                               std::span<const std::string> names,
                                               const JudgeOptions& options);

}  // namespace lockstep::watch
