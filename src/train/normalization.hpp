#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/train/run_plan.hpp"
#include "lockstep/train/weights_normalization.hpp"

#include <string>

namespace lockstep {

/// Broadcasts rank 0's values; collective. Error(bad_input) if they are not usable.
[[nodiscard]] WeightsNormalization broadcast_normalization(const CheckpointInfo& info,
                                                           const std::string& file,
                                                           Communicator& comm);

/// Normalises inputs as in the training of the weights: sets --mean and --std, if not given, to the
/// weights' values in `config`; resolve_run() uses the data set's for those still empty. Returns a
/// warning if the given values or those that the data set states are others, or if the weights
/// state none, else an empty text.
[[nodiscard]] std::string normalize_as_trained(const WeightsNormalization& weights,
                                               const DatasetInfo& data, Config& config);

struct NormalizedPlan {
  RunPlan plan;
  std::string warning;  ///< from normalize_as_trained()
};
/// The run's plan, with the input normalization that its initial weights were trained with: that of
/// the checkpoint, else of --init-from. --mean and --std take precedence. Collective.
[[nodiscard]] NormalizedPlan normalized_plan(const Config& config, const RunStart& start,
                                             const DatasetInfo& data, Communicator& comm);

}  // namespace lockstep
