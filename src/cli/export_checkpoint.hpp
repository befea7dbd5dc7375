#pragma once

#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/export/trained_model.hpp"

#include <optional>
#include <string>

namespace lockstep::cli {

struct StoredTrainedModel {
  TrainedModel model;
  std::string weights_text;  ///< chosen_model_text()
  std::string warning;       ///< normalization_change() of `given`
};

/// The model in a checkpoint or a file with only /model, or the model's average: chosen_model() of
/// `ema`. `given` overrides what the file says: model with width, image_size, channels, mean, std;
/// empty or 0 is the file's. Error(usage) if neither says which model it is, or how large its
/// images are; Error(bad_input) if the file is another model's or has no average.
[[nodiscard]] StoredTrainedModel read_trained_model(const std::string& path, const Config& given,
                                                    std::optional<bool> ema);

}  // namespace lockstep::cli
