#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/image_mix.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/core/philox.hpp"

#include <cstdint>

namespace lockstep {

/// Mixing of the samples 2k and 2k + 1 of each global batch, timm's mode `pair`. If both kinds are
/// enabled, each pair gets one of them with probability 1/2.
struct MixOptions {
  double mixup = 0;   ///< alpha of the weights' distribution, Beta(alpha, alpha); 0: no mixup
  double cutmix = 0;  ///< the same for CutMix
  [[nodiscard]] bool any() const noexcept { return mixup > 0 || cutmix > 0; }
};

/// Random numbers for the pair whose first sample is at position 2k or 2k + 1 of the epoch. A pure
/// function of its arguments, so a run can resume anywhere.
[[nodiscard]] inline PhiloxStream mixing_stream(std::uint64_t seed, std::int64_t epoch,
                                                std::int64_t pair) noexcept {
  return {seed, RandomPurpose::mixing, static_cast<std::uint64_t>(pair),
          static_cast<std::uint32_t>(epoch)};
}

/// A number with the distribution Beta(alpha, alpha), alpha > 0. Sources: M. Joehnk, "Erzeugung von
/// betaverteilten und gammaverteilten Zufallszahlen", Metrika 8, 1964, for alpha <= 1; algorithm BB
/// of R. Cheng, "Generating beta variates with nonintegral shape parameters", CACM 21, 1978.
[[nodiscard]] double draw_beta(PhiloxStream& random, double alpha) noexcept;

/// CutMix's box for an image: a share 1 - lambda of its area, around a random pixel, clipped to the
/// image; as torchvision and timm draw it.
[[nodiscard]] PixelBox draw_cutmix_box(PhiloxStream& random, double lambda,
                                       const ImageShape& image) noexcept;

/// How both samples of a pair are mixed, without the partner. CutMix's weight is the share of the
/// image that is not in the box. options.any().
[[nodiscard]] ImageMix draw_mix(PhiloxStream& random, const MixOptions& options,
                                const ImageShape& image) noexcept;

/// Mixes the normalised images of a pair, in place; a device computes the same bits.
void mix_pair(const ImageMix& mix, const ImageShape& image, ImageLayout layout, float* one,
              float* other) noexcept;

}  // namespace lockstep
