#pragma once

#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/export/trained_model.hpp"

#include <string>

namespace lockstep::cli {

/// The model in a checkpoint or a file with only /model, or the model's average. `given` overrides
/// what the file says: model with width, image_size, channels, mean, std; empty or 0 is the file's.
/// Error(usage) if neither says which model it is, or how large its images are; Error(bad_input) if
/// the file is another model's or has no average.
[[nodiscard]] TrainedModel read_trained_model(const std::string& path, const Config& given,
                                              StoredModel from);

}  // namespace lockstep::cli
