#pragma once

#include "lockstep/config/options.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

/// The lines of a sweep's file that hold options: not blank, and no comments (#). `file` names it
/// in Error(bad_input) if there are none.
[[nodiscard]] std::vector<std::string> sweep_lines(const std::string& text,
                                                   const std::string& file);

/// The words of a line, between blanks.
[[nodiscard]] std::vector<std::string> words_of(std::string_view line);

/// Name of the run with these options, as a folder: they are sorted, so no other line changes it.
/// A checksum keeps names apart that are cut, or lose characters.
[[nodiscard]] std::string sweep_name(const std::vector<std::string>& words);

/// A run of a sweep.
struct SweepRun {
  std::string line;
  std::vector<std::string> arguments;  ///< all of its options, for `lockstep train`
  std::string directory;
  std::string configuration;  ///< as print_config()
};

struct Sweep {
  std::string directory;  ///< of the runs whose line has neither --model nor --config
  std::vector<SweepRun> runs;
};

/// The runs of these lines of `file`. Options of a line override the `common` ones. Errors name the
/// line: Error(usage) if training cannot start with its options, or if it sets what the sweep does;
/// Error(bad_input) for two lines that are the same run.
[[nodiscard]] Sweep plan_sweep(std::span<const std::string> lines, const std::string& file,
                               const std::vector<std::string>& common, const FileReader& read = {});

/// What the run's directory tells.
struct SweepState {
  bool finished = false;  ///< with the epochs and steps of now
  std::string other;      ///< options of a finished run that differ now: "lr 0.1, wd 0"
  std::string status;     ///< as figures_of(); empty: there is no run yet
  double step = 0;
};
[[nodiscard]] SweepState state_of(const SweepRun& run);

}  // namespace lockstep::report
