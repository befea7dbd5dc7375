#pragma once

#include "lockstep/doctor/facts.hpp"
#include "lockstep/doctor/finding.hpp"

#include <span>

/// Each check's judgement: pure, facts in, one finding out.
namespace lockstep::doctor {

struct WorldFacts {
  int size = 1;  ///< as MPI counts
  int nodes = 1;
  std::string library = {};  ///< "Open MPI v4.1.4"
  double start_seconds = 0;
  LaunchFacts launch = {};  ///< rank 0's
};
[[nodiscard]] Finding judge_ranks(const WorldFacts& world);
/// MPI did not start within the limit, or ended the process instead.
[[nodiscard]] Finding judge_start(const LaunchFacts& launch, const std::string& host,
                                  const std::string& what);
/// Ranks of which nothing was heard, by what they were doing.
struct SilentRank {
  int rank = 0;
  std::string node = {};  ///< empty: not known
  std::string phase = {};
  double seconds = 0;  ///< for which it was waited for
};
[[nodiscard]] Finding judge_answers(std::span<const SilentRank> silent);

[[nodiscard]] Finding judge_cores(std::span<const RankFacts> ranks);
[[nodiscard]] Finding judge_gpus(std::span<const RankFacts> ranks);
[[nodiscard]] Finding judge_neighbours(std::span<const LinkFacts> links);
/// A pair that deserves a second look: far below the median of at least three, or slow by any
/// measure; null where there is none.
[[nodiscard]] NodePairFacts* slow_pair(std::span<NodePairFacts> pairs);
[[nodiscard]] Finding judge_nodes(std::span<const std::string> nodes,
                                  std::span<const NodePairFacts> pairs);
[[nodiscard]] Finding judge_nccl(const NcclFacts& facts);
[[nodiscard]] Finding judge_clocks(std::span<const ClockFacts> clocks);
[[nodiscard]] Finding judge_data(const std::string& directory, std::span<const DataFacts> nodes);
[[nodiscard]] Finding judge_run_directory(const RunDirectoryFacts& facts,
                                          std::span<const SharedDirectoryFacts> others);
[[nodiscard]] Finding judge_space(const SpaceFacts& facts);

}  // namespace lockstep::doctor
