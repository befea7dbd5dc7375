#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/staging.hpp"
#include "lockstep/train/run_reporter.hpp"
#include "lockstep/train/trainer.hpp"

#include <memory>
#include <vector>

namespace lockstep {

/// Begins to copy the data sets' shards to --stage-dir, in their order; a null pointer is a data
/// set that is not there. Collective; null without --stage-dir. Before the first read.
[[nodiscard]] std::shared_ptr<Staging> stage_data(const Config& config, const TrainingJob& job,
                                                  const std::vector<Dataset*>& datasets);

/// Says what the copying came to since the last call.
void report_staging(Staging* staging, RunReporter& reporter);

}  // namespace lockstep
