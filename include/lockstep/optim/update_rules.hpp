#pragma once

#include "lockstep/core/host_device.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

/// The update formulas of all optimizers for one value, for CPUs and devices.
namespace lockstep {

/// Of an optimizer that keeps one value beside each parameter, at any tensor.
struct MomentumOptions {
  float momentum = 0;
  bool nesterov = false;
  double beta1 = 0;
  double beta2 = 0;
};

// Rules of such optimizers. `lr`, `weight_decay` and `gradient_scale` are set for each tensor.

/// As torch.optim.SGD without dampening: v = momentum * v + (g + decay * w); w -= lr * v, or
/// lr * (g + decay * w + momentum * v) with Nesterov. v starts at zero, which equals its first
/// step.
struct SgdRule {
  static constexpr const char* slot_name = "momentum_buffer";
  static SgdRule of(const MomentumOptions& options) {
    return {.momentum = options.momentum, .nesterov = options.nesterov};
  }
  float lr = 0;
  float weight_decay = 0;
  float momentum = 0;
  float gradient_scale = 1;
  bool nesterov = false;
  LOCKSTEP_HOST_DEVICE void operator()(float g, float& w, float& v) const {
    const float d = gradient_scale * g + weight_decay * w;
    v = momentum * v + d;
    w -= lr * (nesterov ? d + momentum * v : v);
  }
};

/// As timm's Lion: w -= lr * (sign(beta1 * m + (1 - beta1) * g) + decay * w); m = beta2 * m +
/// (1 - beta2) * g. A gradient that is not a number moves its weight to NaN, as torch.sign() does;
/// an infinite one is a sign like others, as in timm.
/// Source: X. Chen et al., "Symbolic discovery of optimization algorithms", 2023, program 1.
struct LionRule {
  static constexpr const char* slot_name = "exp_avg";
  static LionRule of(const MomentumOptions& options) {
    return {.beta1 = static_cast<float>(options.beta1),
            .beta2 = static_cast<float>(options.beta2),
            .rest1 = static_cast<float>(1.0 - options.beta1),
            .rest2 = static_cast<float>(1.0 - options.beta2)};
  }
  float lr = 0;
  float weight_decay = 0;
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 1;
  float rest2 = 1;
  float gradient_scale = 1;
  LOCKSTEP_HOST_DEVICE void operator()(float g, float& w, float& m) const {
    const float d = gradient_scale * g;
    const float c = beta1 * m + rest1 * d;
    const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : c;
    w -= lr * (sign + weight_decay * w);
    m = beta2 * m + rest2 * d;
  }
};

/// `lr` is the learning rate times the trust ratio.
struct LarsRule {
  float lr = 0;
  float weight_decay = 0;
  float momentum = 0;
  float gradient_scale = 1;
  LOCKSTEP_HOST_DEVICE void operator()(float g, float& w, float& v) const {
    v = momentum * v + lr * (gradient_scale * g + weight_decay * w);
    w -= v;
  }
};

/// Exponential moving average; a decay of 0 copies the value.
struct AverageRule {
  float decay;
  float rest;  ///< 1 - decay
  LOCKSTEP_HOST_DEVICE void operator()(float w, float& average) const {
    average = decay == 0 ? w : decay * average + rest * w;
  }
};
[[nodiscard]] inline AverageRule average_rule(double decay) {
  return {.decay = static_cast<float>(decay), .rest = static_cast<float>(1.0 - decay)};
}

/// LARS trust ratio of a tensor, from the norms of its weights and of its scaled gradient; 1 if
/// either is zero. LAMB's is that of a coefficient of 1, the norm of a whole step and no decay.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline double trust_ratio(double trust_coefficient,
                                                             double weight_norm,
                                                             double gradient_norm,
                                                             double weight_decay) {
  if (weight_norm == 0 || gradient_norm == 0) return 1.0;
  return trust_coefficient * weight_norm / (gradient_norm + weight_decay * weight_norm);
}

/// As torch.optim.Adam and AdamW. adam_rule() and set_tensor() set the members for a step.
struct AdamRule {
  float beta1;
  float beta2;
  float rest1;  ///< 1 - beta1
  float rest2;
  float eps;
  float root2;  ///< sqrt(1 - beta2^step)
  float gradient_scale;
  float coupled_decay;  ///< times the value, added to the gradient
  float shrink;         ///< multiplies the value: 1 - lr * decoupled decay
  float step_size;      ///< lr / (1 - beta1^step)
  double inverse1;      ///< 1 / (1 - beta1^step)
  LOCKSTEP_HOST_DEVICE void operator()(float g, float& w, float& m, float& v) const {
    const float d = gradient_scale * g + coupled_decay * w;
    m = beta1 * m + rest1 * d;
    v = beta2 * v + rest2 * d * d;
    w = shrink * w - step_size * m / (std::sqrt(v) / root2 + eps);
  }
};
struct AdamMoments {
  double beta1;
  double beta2;
  double eps;
  double correction1;  ///< 1 - beta1^step
  double correction2;
};
/// Sets all members except those per tensor, which set_tensor() sets.
[[nodiscard]] inline AdamRule adam_rule(const AdamMoments& moments, float gradient_scale) {
  return {.beta1 = static_cast<float>(moments.beta1),
          .beta2 = static_cast<float>(moments.beta2),
          .rest1 = static_cast<float>(1.0 - moments.beta1),
          .rest2 = static_cast<float>(1.0 - moments.beta2),
          // An eps that rounds to 0 in fp32 would compute 0 / 0 in the padding.
          .eps = std::max(static_cast<float>(moments.eps), std::numeric_limits<float>::min()),
          .root2 = static_cast<float>(std::sqrt(moments.correction2)),
          .gradient_scale = gradient_scale,
          .coupled_decay = 0,
          .shrink = 1,
          .step_size = 0,
          .inverse1 = 1 / moments.correction1};
}
LOCKSTEP_HOST_DEVICE inline void set_tensor(AdamRule& rule, double lr, float weight_decay,
                                            bool decoupled) {
  rule.coupled_decay = decoupled ? 0.0F : weight_decay;
  rule.shrink = static_cast<float>(decoupled ? 1.0 - lr * static_cast<double>(weight_decay) : 1.0);
  rule.step_size = static_cast<float>(lr * rule.inverse1);
}
/// LAMB is AdamW whose learning rate is multiplied by a trust ratio |w| / |u| per tensor, where
/// -u is AdamW's step at a learning rate of 1. Makes the rule replace a value by its -u.
LOCKSTEP_HOST_DEVICE inline void set_unit_step(AdamRule& rule, float weight_decay) {
  rule.coupled_decay = 0;
  rule.shrink = -weight_decay;
  rule.step_size = static_cast<float>(rule.inverse1);
}

}  // namespace lockstep
