#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/data/class_names.hpp"
#include "lockstep/data/dataset.hpp"

#include <memory>
#include <string>

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

}  // namespace lockstep
