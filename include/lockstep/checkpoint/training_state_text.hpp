#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"

#include <string>

namespace lockstep {

/// A state as text that other ranks read back to the bit; never empty.
[[nodiscard]] std::string training_state_text(const TrainingState& state);
/// Inverse; Error(internal) for other text.
[[nodiscard]] TrainingState parse_training_state(const std::string& text);

}  // namespace lockstep
