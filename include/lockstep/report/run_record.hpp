#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/report/confusion.hpp"
#include "lockstep/report/curve.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::report {

using Options = std::vector<std::pair<std::string, std::string>>;

/// The reports of one slow rank.
struct SlowRank {
  std::string host;
  std::int64_t rank = 0;
  std::int64_t reports = 0;
  double worst = 0;  ///< times the median rank's own time a step
  double last_epoch = 0;
  double last_factor = unknown;  ///< of the report of that epoch
  double data = unknown;         ///< seconds a step, of the worst report
  double compute = unknown;
};

/// A job of the run.
struct Session {
  Position at;
  Json event;                        ///< `start` or `resume`
  std::optional<Position> end = {};  ///< of its event `stop`
  std::string reason = {};           ///< why it stopped; empty: unknown
};

constexpr std::size_t most_series = 16;
constexpr std::size_t most_recent = 500;  ///< recorded steps that are kept singly

/// One recorded step.
struct RecordedStep {
  Position at;
  std::array<double, most_series> values{};  ///< in the order of RunRecord::steps
};

/// What a run directory tells about its training, in bounded memory.
struct RunRecord {
  explicit RunRecord(std::size_t most_bins);

  std::string path;
  std::string name;
  Options options;  ///< of config.ini
  Curve steps;
  Curve epochs;
  Curve evaluations;
  std::deque<RecordedStep> recent;  ///< the last rows of `steps`
  Curve checkpoints;                ///< without values
  Curve stragglers;                 ///< without values
  std::vector<Session> sessions;
  std::vector<SlowRank> slow_ranks;
  Position last;
  double last_time = unknown;      ///< Unix time of the last event
  double longest_pause = unknown;  ///< seconds between events of the last job
  double saved_step = unknown;     ///< of the last checkpoint
  double save_seconds = unknown;
  double epoch_samples = unknown;
  double peak_rss = unknown;
  std::int64_t not_finite = 0;  ///< steps with a loss that is not finite
  double first_not_finite = unknown;
  std::optional<Confusion> confusion;
  std::vector<std::string> notes;  ///< what could not be read

  /// Index of a series of `curve`.
  [[nodiscard]] static std::size_t series(const Curve& curve, const std::string& name);
};

/// Reads metrics.jsonl, config.ini and confusion.csv; what is damaged or absent becomes a note.
/// Error(no_input) as require_run().
[[nodiscard]] RunRecord read_run(const std::string& path, std::size_t most_bins);

/// Name of the last folder of `path`.
[[nodiscard]] std::string run_name(const std::string& path);

/// Error(no_input) if `path` is no directory with metrics.jsonl.
void require_run(const std::string& path);

/// "name=value" lines of an INI file.
[[nodiscard]] Options parse_options(const std::string& text);

}  // namespace lockstep::report
