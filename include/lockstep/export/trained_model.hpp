#pragma once

#include "lockstep/graph/graph.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A network with the values of its tensors, and what its checkpoint says of its training.
struct TrainedModel {
  Graph graph;
  std::vector<std::vector<float>> parameters;  ///< by ParameterId, in the plain layout
  std::vector<std::vector<float>> statistics;  ///< by StatisticId
  /// Of pixels in [0, 1], one value or one a channel; empty: unknown.
  std::vector<float> mean = {};
  std::vector<float> std = {};
  std::vector<std::string> class_names = {};  ///< empty: unknown
  std::optional<std::int64_t> step = {};      ///< optimizer steps done; nullopt: unknown
  std::optional<std::int64_t> epoch = {};     ///< epoch of the next step; nullopt: unknown
  std::string weights = {};  ///< "current", or "ema": their average; empty: unknown
  /// In the run's evaluations, JPEG images are resized until their short side has so many pixels,
  /// and cropped at the center to the network's input; nullopt: unknown, or stored as pixels.
  std::optional<std::int64_t> resize = {};
  std::string interpolation = {};  ///< of this resize: "bilinear", "bicubic"; empty: unknown
};

/// A JSON list with the shortest digits that give the same floats, which nlohmann's, a double's, do
/// not; empty: no values.
[[nodiscard]] std::string value_list(const std::vector<float>& values);

}  // namespace lockstep
