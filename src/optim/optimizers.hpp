#pragma once

#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/update_rules.hpp"

namespace lockstep {

// `sum_norms`: as of make_optimizer().

/// Of a rule that keeps one value (update_rules.hpp).
[[nodiscard]] std::unique_ptr<Optimizer> make_momentum(const Config& config,
                                                       const ArenaLayout& layout);
[[nodiscard]] MomentumOptions momentum_options(const Config& config);

/// m, v: running means of g and g^2; w -= lr * m_hat / (sqrt(v_hat) + eps). As torch.optim.Adam and
/// AdamW: Adam adds decay * w to g, AdamW multiplies w by 1 - lr * decay.
[[nodiscard]] std::unique_ptr<Optimizer> make_adam(const Config& config, const ArenaLayout& layout,
                                                   const SumOverRanks& sum_norms);

/// Layer-wise rates for weights: local = trust * |w| / (|g| + decay * |w|), 1 if a norm is zero;
/// v = momentum * v + lr * local * (g + decay * w); w -= v. Norm and bias parameters take local
/// = 1. Source: Y. You et al., "Large batch training of convolutional networks", 2017, algorithm 1.
[[nodiscard]] std::unique_ptr<Optimizer> make_lars(const Config& config, const ArenaLayout& layout,
                                                   const SumOverRanks& sum_norms);

/// Adds the slot ema_slot: after each update of `inner`, the average of its parameters follows, as
/// UpdateOptions::ema_decay says.
[[nodiscard]] std::unique_ptr<Optimizer> make_averaging(std::unique_ptr<Optimizer> inner,
                                                        const ArenaLayout& layout);

}  // namespace lockstep
