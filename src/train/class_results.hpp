#pragma once

#include "lockstep/run/evaluation_result.hpp"
#include "lockstep/train/evaluated_samples.hpp"

#include <span>

namespace lockstep {

/// Adds the samples to the results of their classes, and the hits as BatchMetrics::top1 counts
/// them, by LabelRank.
void add_to_classes(const EvaluatedSamples& samples, std::span<ClassResult> classes);

}  // namespace lockstep
