#pragma once

#include "lockstep/core/precision.hpp"

#include <string>

namespace lockstep {

// The convolution algorithms that a run has chosen, as its checkpoints store them: lines of text.
// A run may compute on CPUs and on GPUs, and in several precisions, one after another; it keeps
// what it chose for each.

enum class ChoiceKind { cpu_fp32, cpu_bf16, gpu };

/// The kind of a CPU engine's choices.
[[nodiscard]] ChoiceKind cpu_choices(Precision precision) noexcept;
/// The choices of one kind, in the form that the engine writes.
[[nodiscard]] std::string choices_of(ChoiceKind kind, const std::string& run);
/// The run's choices with those of one kind replaced.
[[nodiscard]] std::string with_choices(ChoiceKind kind, const std::string& choices,
                                       const std::string& run);

}  // namespace lockstep
