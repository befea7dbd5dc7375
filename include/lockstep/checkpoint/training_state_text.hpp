#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"

#include <string>

namespace lockstep {

/// Serialises a state so that other ranks read back the same bits; never empty.
[[nodiscard]] std::string training_state_text(const TrainingState& state);
/// Inverse; Error(internal) if `text` is not a serialised state.
[[nodiscard]] TrainingState parse_training_state(const std::string& text);

}  // namespace lockstep
