#pragma once

#include "lockstep/export/trained_model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What is known of a model, as names and texts: model, input (C, H, W), classes, step, epoch,
/// weights, mean, std, resize, interpolation, class_names. Lists are JSON. Leaves out what is
/// unknown.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> metadata(const TrainedModel& model);

}  // namespace lockstep
