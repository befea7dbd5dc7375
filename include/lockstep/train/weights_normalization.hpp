#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct Config;

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

}  // namespace lockstep
