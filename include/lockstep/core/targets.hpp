#pragma once

#include "lockstep/core/host_device.hpp"
#include "lockstep/core/image_mix.hpp"

#include <cstdint>

namespace lockstep {

/// The labels of one sample's target and their shares of it. Hosts and devices compute the same
/// bits.
struct SampleTarget {
  std::int32_t label;
  std::int32_t partner;  ///< the partner's label; `label` if the sample is not mixed
  double weight;         ///< share of `label`; `partner` has the rest

  /// Share of class k.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double share(std::int64_t k) const {
    return (k == label ? weight : 0.0) + (k == partner ? 1 - weight : 0.0);
  }
  /// Mean of a value of `label` and one of `partner`, by shares. A share of 0 hides an infinity.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE double mean(double of_label, double of_partner) const {
    return (weight == 0 ? 0.0 : weight * of_label) +
           (weight == 1 ? 0.0 : (1 - weight) * of_partner);
  }
  /// The label with the greater share, for hits.
  [[nodiscard]] LOCKSTEP_HOST_DEVICE std::int32_t heavier() const {
    return weight < 0.5 ? partner : label;
  }
};

/// The targets of a batch: what a loss and the metrics compare logits with.
struct Targets {
  const std::int32_t* labels = nullptr;  ///< (N,)
  /// (N,), null: no sample is mixed. Values are mixed already; the engine mixes pixels and targets.
  const ImageMix* mixes = nullptr;
  friend bool operator==(const Targets&, const Targets&) = default;

  [[nodiscard]] LOCKSTEP_HOST_DEVICE SampleTarget target(std::int64_t sample) const {
    if (mixes == nullptr) return {.label = labels[sample], .partner = labels[sample], .weight = 1};
    const ImageMix mix = mixes[sample];
    return {.label = labels[sample],
            .partner = labels[mix.partner],
            .weight = static_cast<double>(mix.weight)};
  }
};

}  // namespace lockstep
