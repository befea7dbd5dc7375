#include "lockstep/data/mix.hpp"

#include "box_rows.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {
namespace {

/// Uniform in (0, 1].
double next_positive(PhiloxStream& random) noexcept {
  return 1.0 - random.next_double();
}

double draw_beta_by_joehnk(PhiloxStream& random, double alpha) noexcept {
  for (;;) {
    const double log_u = std::log(next_positive(random));
    const double log_v = std::log(next_positive(random));
    // Powers of 1 / alpha may be too small for a double, but not their quotient.
    if (std::exp(log_u / alpha) + std::exp(log_v / alpha) <= 1) {
      return 1 / (1 + std::exp((log_v - log_u) / alpha));
    }
  }
}

double draw_beta_by_cheng(PhiloxStream& random, double alpha) noexcept {
  // His a and b are alpha here, his alpha their sum, his beta 1 / sqrt(alpha).
  const double gamma = alpha + std::sqrt(alpha);
  for (;;) {
    const double u1 = random.next_double();
    const double u2 = next_positive(random);
    if (u1 == 0) continue;
    const double v = std::log(u1 / (1 - u1)) / std::sqrt(alpha);
    const double w = alpha * std::exp(v);
    const double r = gamma * v - 2 * std::numbers::ln2;
    if (r + 2 * alpha * std::log(2 * alpha / (alpha + w)) >= std::log(u1 * u1 * u2)) {
      return w / (alpha + w);
    }
  }
}

}  // namespace

double draw_beta(PhiloxStream& random, double alpha) noexcept {
  return alpha <= 1 ? draw_beta_by_joehnk(random, alpha) : draw_beta_by_cheng(random, alpha);
}

PixelBox draw_cutmix_box(PhiloxStream& random, double lambda, const ImageShape& image) noexcept {
  const double half_side = 0.5 * std::sqrt(1 - lambda);
  struct Range {
    std::int32_t begin;
    std::int32_t size;
  };
  const auto draw = [&](std::int64_t extent) -> Range {
    const std::int64_t centre{random.next_below(static_cast<std::uint32_t>(extent))};
    const auto half = static_cast<std::int64_t>(half_side * static_cast<double>(extent));
    const std::int64_t begin = std::max<std::int64_t>(centre - half, 0);
    const std::int64_t end = std::min(centre + half, extent);
    return {.begin = static_cast<std::int32_t>(begin),
            .size = static_cast<std::int32_t>(end - begin)};
  };
  const Range rows = draw(image.height);
  const Range columns = draw(image.width);
  return {.top = rows.begin, .left = columns.begin, .height = rows.size, .width = columns.size};
}

ImageMix draw_mix(PhiloxStream& random, const MixOptions& options,
                  const ImageShape& image) noexcept {
  const bool both = options.mixup > 0 && options.cutmix > 0;
  const bool cuts = both ? random.next_below(2) == 1 : options.cutmix > 0;
  const double lambda = draw_beta(random, cuts ? options.cutmix : options.mixup);
  if (!cuts) return {.weight = static_cast<float>(lambda)};
  const PixelBox box = draw_cutmix_box(random, lambda, image);
  const double area = static_cast<double>(box.height) * static_cast<double>(box.width);
  const double whole = static_cast<double>(image.height) * static_cast<double>(image.width);
  return {.weight = static_cast<float>(1 - area / whole), .box = box};
}

void mix_pair(const ImageMix& mix, const ImageShape& image, ImageLayout layout, float* one,
              float* other) noexcept {
  if (!mix.box.is_empty()) {
    for_each_row(mix.box, image, layout, [=](std::int64_t begin, std::int64_t size) {
      std::swap_ranges(one + begin, one + begin + size, other + begin);
    });
    return;
  }
  const float weight = mix.weight;
  const float rest = 1.0F - weight;
  const std::int64_t values = image.channels * image.height * image.width;
  for (std::int64_t i = 0; i < values; ++i) {
    const float x = one[i];
    const float y = other[i];
    one[i] = weight * x + rest * y;
    other[i] = weight * y + rest * x;
  }
}

}  // namespace lockstep
