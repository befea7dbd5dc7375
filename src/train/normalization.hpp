#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/dataset.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// A file of weights, and the channel means and standard deviations that it says its network was
/// trained with; empty: it does not say.
struct WeightsNormalization {
  std::string file;
  std::vector<float> mean;
  std::vector<float> std;
};

/// Rank 0's on every rank; collective. Error(bad_input) where the values are of no use.
[[nodiscard]] WeightsNormalization broadcast_normalization(const CheckpointInfo& info,
                                                           const std::string& file,
                                                           Communicator& comm);

/// Inputs are normalised as the weights were trained: where --mean or --std are not given, `config`
/// takes the weights' own values; resolve_run() takes the data set's for those still empty.
/// Returns what the user should know, empty where nothing: the data set states other values, or
/// the weights state none.
[[nodiscard]] std::string normalize_as_trained(const WeightsNormalization& weights,
                                               const DatasetInfo& data, Config& config);

}  // namespace lockstep
