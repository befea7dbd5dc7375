#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/data/class_names.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/staging.hpp"
#include "lockstep/run/run_reporter.hpp"
#include "lockstep/train/trainer.hpp"

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Broadcasts rank 0's names of the network's classes; collective.
[[nodiscard]] ClassNames broadcast_class_names(const CheckpointInfo& info, const std::string& file,
                                               Communicator& comm);

/// A data set whose labels are the network's outputs.
struct MatchedData {
  std::shared_ptr<Dataset> data;
  std::string note;  ///< for the user; empty: nothing to say
};
/// Matches the labels of data to evaluate with the network's outputs by match_classes(), whose
/// Error all ranks throw.
[[nodiscard]] MatchedData match_data(const ClassNames& network, std::unique_ptr<Dataset> data);

struct MatchedTraining {
  MatchedData matched;
  ClassNames classes;  ///< the network's
};
/// Matches training data with the outputs of the checkpoint to resume from, or of --init-from with
/// its head. The identity of renumbered data is that of files with the new labels. Collective.
[[nodiscard]] MatchedTraining match_training_data(std::unique_ptr<Dataset> data,
                                                  const RunStart& start, const Config& config,
                                                  Communicator& comm);

/// The training split of --data, or --synthetic images. Collective.
[[nodiscard]] std::unique_ptr<Dataset> open_training_data(const Config& config, Communicator& comm);

/// The validation split of --val-data, with labels matched to the network's classes; null if there
/// is none. Error(usage) if it has more classes than the network. `config`: with the network's
/// number of classes, as in RunPlan. Collective.
[[nodiscard]] MatchedData open_validation_data(const Config& config, const ClassNames& network,
                                               Communicator& comm);

/// Starts to copy the data sets' shards to --stage-dir, in order; null pointers are missing data
/// sets. Collective; call before the first read. Returns null without --stage-dir.
[[nodiscard]] std::shared_ptr<Staging> stage_data(const Config& config, const TrainingJob& job,
                                                  const std::vector<Dataset*>& datasets);

/// Reports the progress of staging since the last call.
void report_staging(Staging* staging, RunReporter& reporter);

}  // namespace lockstep
