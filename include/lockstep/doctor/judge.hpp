#pragma once

#include "lockstep/doctor/facts.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

/// Each check's judgement: a pure function from facts to one finding. A speed is judged by the best
/// of its measurements, since any may be slow by chance.
namespace lockstep::doctor {

enum class Verdict {
  ok,
  warn,  ///< a run would work, but not as well as it could
  fail,  ///< a run would stop
};

/// The result of one check.
struct Finding {
  std::string check;  ///< "run-dir"
  Verdict verdict = Verdict::ok;
  std::string text = {};  ///< one line; not ok: *problem (why); suggestion*
  std::vector<std::pair<std::string, double>> values = {};  ///< what was measured, for --json

  /// The same with another verdict and text.
  template <typename... Values>
  Finding& become(Verdict now, fmt::format_string<Values...> format, Values&&... shown) {
    verdict = now;
    text = fmt::format(format, std::forward<Values>(shown)...);
    return *this;
  }
};

/// Measurements that a finding about a speed rests on. What the first one finds to be slow is
/// measured again.
inline constexpr std::size_t measurements_to_find = 3;

struct WorldFacts {
  int size = 1;  ///< number of ranks according to MPI
  int nodes = 1;
  std::string library = {};  ///< "Open MPI v4.1.4"
  double start_seconds = 0;
  LaunchFacts launch = {};  ///< of rank 0
};
[[nodiscard]] Finding judge_ranks(const WorldFacts& world);
/// For MPI that did not start within the limit or ended the process.
[[nodiscard]] Finding judge_start(const LaunchFacts& launch, const std::string& host,
                                  const std::string& what);
/// A rank that did not answer, and what it was asked to do.
struct SilentRank {
  int rank = 0;
  std::string node = {};  ///< empty: unknown
  std::string phase = {};
  double seconds = 0;  ///< how long rank 0 waited for it
};
[[nodiscard]] Finding judge_answers(std::span<const SilentRank> silent);

[[nodiscard]] Finding judge_cores(std::span<const RankFacts> ranks);
/// `asked`: --watchdog-interface.
[[nodiscard]] Finding judge_interface(std::span<const RankFacts> ranks, const std::string& asked);
[[nodiscard]] Finding judge_gpus(std::span<const RankFacts> ranks);
/// Nothing if no rank knows the place of a GPU.
[[nodiscard]] std::optional<Finding> judge_locality(std::span<const RankFacts> ranks);
[[nodiscard]] Finding judge_neighbours(std::span<const LinkFacts> links);
/// A pair that judge_nodes() would report, or report a node for, by fewer measurements than
/// measurements_to_find; null: none.
[[nodiscard]] NodePairFacts* suspect_pair(std::span<const std::string> nodes,
                                          std::span<NodePairFacts> pairs);
/// Adds a measurement of the same pair, or its error.
void add_measurement(NodePairFacts& pair, const NodePairFacts& again);
[[nodiscard]] Finding judge_nodes(std::span<const std::string> nodes,
                                  std::span<const NodePairFacts> pairs);
[[nodiscard]] Finding judge_nccl(const NcclFacts& facts);
[[nodiscard]] Finding judge_clocks(std::span<const ClockFacts> clocks);
/// Names of the nodes that read far slower than the median of at least three.
[[nodiscard]] std::vector<std::string> slow_readers(std::span<const DataFacts> nodes);
[[nodiscard]] Finding judge_data(const std::string& directory, std::span<const DataFacts> nodes);
[[nodiscard]] bool is_slow_rename(double seconds);
[[nodiscard]] Finding judge_run_directory(const RunDirectoryFacts& facts,
                                          std::span<const SharedDirectoryFacts> others);
[[nodiscard]] Finding judge_space(const SpaceFacts& facts);

}  // namespace lockstep::doctor
