#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/report/curve.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::report {

/// A figure of several repetitions, without those in which it is NaN; NaN: in all.
struct Spread {
  double median = unknown;
  double least = unknown;
  double greatest = unknown;
};
[[nodiscard]] Spread spread_of(std::vector<double> values);

/// What the model of `lockstep scale` says of a point.
struct PredictedPoint {
  double step_seconds = unknown;
  double exposed_seconds = unknown;
  double images_per_second = unknown;
  double efficiency = unknown;  ///< as ScalingPoint::efficiency
};

/// One mode and number of nodes, repeated.
struct ScalingPoint {
  std::string mode;  ///< "weak": the same batch a rank, or "strong": the same global batch
  std::int64_t nodes = 0;
  std::int64_t wanted = 0;           ///< repetitions
  std::vector<std::string> missing;  ///< names of those without a result: "weak-0002-1"
  std::int64_t ranks = 0;            ///< 0: every repetition is missing
  std::int64_t batch = 0;            ///< global
  Spread images_per_second;
  Spread efficiency;              ///< images/s a node, by those of the mode's fewest nodes
  double step_seconds = unknown;  ///< this and the next are medians
  double compute_seconds = unknown;
  double exposed_seconds = unknown;  ///< communication that backward does not hide
  double hidden_seconds = unknown;   ///< communication while ranks compute
  double exposed_share = unknown;    ///< of the step
  std::optional<PredictedPoint> predicted;

  [[nodiscard]] std::int64_t runs() const noexcept {
    return wanted - static_cast<std::int64_t>(missing.size());
  }
};

/// The results of slurm/scaling.sbatch.
struct ScalingStudy {
  std::string path;
  std::string name;
  Json benchmark;                    ///< a result of `lockstep bench step`; null: there is none
  std::vector<ScalingPoint> points;  ///< weak before strong, then by nodes
  std::vector<std::string> notes;    ///< what could not be read

  [[nodiscard]] bool is_complete() const noexcept;
};

/// Whether `path` is a directory of results: it contains the list of points.
[[nodiscard]] bool is_scaling_study(const std::string& path);

/// Reads the list `points` (lines of mode, nodes and repetition) and a result for each of them,
/// MODE-NNNN-REPETITION.json. Results that are absent or damaged are missing. Error(bad_input) for
/// a damaged list.
[[nodiscard]] ScalingStudy read_scaling_study(const std::string& path);

/// "resnet50, fp32, oneDNN 3.5" or "nothing measured"
[[nodiscard]] std::string title_of(const ScalingStudy& study);

/// The study as a table for a terminal, with its title.
[[nodiscard]] std::string table_of(const ScalingStudy& study);

/// The study as the page and `--json` have it.
[[nodiscard]] Json json_of(const ScalingStudy& study);

}  // namespace lockstep::report
