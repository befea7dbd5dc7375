#pragma once

#include "lockstep/core/host_device.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

/// How one value is updated: the formulas of all optimizers, for processors and devices.
namespace lockstep {

/// As torch.optim.SGD without dampening.
struct SgdRule {
  float lr;
  float weight_decay;
  float momentum;
  float gradient_scale;
  bool nesterov;
  LOCKSTEP_HOST_DEVICE void operator()(float g, float& w, float& v) const {
    const float d = gradient_scale * g + weight_decay * w;
    v = momentum * v + d;
    w -= lr * (nesterov ? d + momentum * v : v);
  }
};

/// `lr` is the tensor's own: the rate times its trust ratio.
struct LarsRule {
  float lr;
  float weight_decay;
  float momentum;
  float gradient_scale;
  LOCKSTEP_HOST_DEVICE void operator()(float g, float& w, float& v) const {
    v = momentum * v + lr * (gradient_scale * g + weight_decay * w);
    w -= v;
  }
};

/// LARS's ratio of a tensor's step to its gradient, from the norms of its weights and of its
/// gradient as it is scaled; 1 where one is zero.
[[nodiscard]] LOCKSTEP_HOST_DEVICE inline double trust_ratio(double trust_coefficient,
                                                             double weight_norm,
                                                             double gradient_norm,
                                                             double weight_decay) {
  if (weight_norm == 0 || gradient_norm == 0) return 1.0;
  return trust_coefficient * weight_norm / (gradient_norm + weight_decay * weight_norm);
}

/// As torch.optim.Adam and AdamW. The members are prepared for a step by adam_rule().
struct AdamRule {
  float beta1;
  float beta2;
  float rest1;  ///< 1 - beta1
  float rest2;
  float eps;
  float root2;  ///< of 1 - beta2^step
  float gradient_scale;
  float coupled_decay;  ///< joins the gradient
  float shrink;         ///< multiplies the value: 1 less the decoupled decay
  float step_size;      ///< lr / (1 - beta1^step)
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
/// All but what differs from tensor to tensor, which set_tensor() adds.
[[nodiscard]] inline AdamRule adam_rule(const AdamMoments& moments, float gradient_scale) {
  return {.beta1 = static_cast<float>(moments.beta1),
          .beta2 = static_cast<float>(moments.beta2),
          .rest1 = static_cast<float>(1.0 - moments.beta1),
          .rest2 = static_cast<float>(1.0 - moments.beta2),
          // An eps that vanishes in fp32 would make the padding 0 / 0.
          .eps = std::max(static_cast<float>(moments.eps), std::numeric_limits<float>::min()),
          .root2 = static_cast<float>(std::sqrt(moments.correction2)),
          .gradient_scale = gradient_scale,
          .coupled_decay = 0,
          .shrink = 1,
          .step_size = 0};
}
LOCKSTEP_HOST_DEVICE inline void set_tensor(AdamRule& rule, double lr, float weight_decay,
                                            double correction1, bool decoupled) {
  rule.coupled_decay = decoupled ? 0.0F : weight_decay;
  rule.shrink = static_cast<float>(decoupled ? 1.0 - lr * static_cast<double>(weight_decay) : 1.0);
  rule.step_size = static_cast<float>(lr / correction1);
}

}  // namespace lockstep
