#pragma once

#include "lockstep/export/trained_model.hpp"

namespace lockstep {

/// The same function with fewer ops: a batch norm of a convolution that nothing else reads becomes
/// part of the convolution. For output channel k, with scale s = weight / sqrt(variance + eps), the
/// convolution's weights are multiplied by s[k], and its bias b becomes s[k] (b[k] - mean[k]) plus
/// the norm's bias. Other batch norms stay. Computed in double, rounded once.
[[nodiscard]] TrainedModel fold_batch_norms(const TrainedModel& model);

}  // namespace lockstep
