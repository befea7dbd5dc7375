#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/staging.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/train/trainer.hpp"

#include <memory>
#include <vector>

namespace lockstep {

/// Starts to copy the data sets' shards to --stage-dir, in order; null pointers are missing data
/// sets. Collective; call before the first read. Returns null without --stage-dir.
[[nodiscard]] std::shared_ptr<Staging> stage_data(const Config& config, const TrainingJob& job,
                                                  const std::vector<Dataset*>& datasets);

/// Reports the progress of staging since the last call.
void report_staging(Staging* staging, RunReporter& reporter);

}  // namespace lockstep
