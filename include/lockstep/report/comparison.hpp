#pragma once

#include "lockstep/report/run_record.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep::report {

/// Final figures of a run; NaN: unknown.
struct Figures {
  std::string status;  ///< "finished", "stopped on request", "no end recorded", ...
  double step = unknown;
  double epochs = unknown;
  double best_top1 = unknown;  ///< of all validations, of the weights or of their average
  double best_step = unknown;
  double top1 = unknown;  ///< of the last validation
  double ema_top1 = unknown;
  double loss = unknown;
  double train_loss = unknown;         ///< mean of the last epoch, else of the last steps
  double images_per_second = unknown;  ///< median
  double hours = unknown;
  double not_finite = 0;  ///< recorded steps with a loss that is not finite
  double first_not_finite = unknown;
};
[[nodiscard]] Figures figures_of(const RunRecord& run);

/// Options whose values differ between runs, except --run-dir, in the order of the first run.
[[nodiscard]] std::vector<std::string> differing_options(std::span<const RunRecord> runs);

/// Value of an option; empty if the run's configuration has none.
[[nodiscard]] std::string option_of(const RunRecord& run, const std::string& name);

/// By run: the index of the first run with the same options, except --seed and --run-dir.
[[nodiscard]] std::vector<std::size_t> same_configuration(std::span<const RunRecord> runs);

}  // namespace lockstep::report
