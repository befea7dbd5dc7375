#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/checkpointing/run_state.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/train/run_plan.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// A file of weights, and the channel means and standard deviations of its training inputs; empty:
/// not in the file.
struct WeightsNormalization {
  std::string file;
  std::vector<float> mean;
  std::vector<float> std;
};

/// A warning if the weights' inputs were normalised with other values than `given.mean` and
/// `given.std`, with both, and the scale and shift between the two; empty: they were not, or the
/// file or `given` has none.
[[nodiscard]] std::string normalization_change(const WeightsNormalization& weights,
                                               const Config& given);

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
