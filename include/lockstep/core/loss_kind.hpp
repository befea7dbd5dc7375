#pragma once

namespace lockstep {

/// Loss of training: softmax cross entropy, or the mean of the classes' binary cross entropies.
enum class LossKind { cross_entropy, bce };

}  // namespace lockstep
