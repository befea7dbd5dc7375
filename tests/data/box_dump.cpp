#include "lockstep/data/augment.hpp"
#include "lockstep/data/mix.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

using namespace lockstep;

namespace {

/// What is drawn for sample or pair i.
ImageMix draw(std::string_view kind, double value, const ImageShape& image, std::int64_t i) {
  if (kind == "crop") {
    PhiloxStream random = augmentation_stream(1, 0, {.sample = i});
    const Region crop = draw_resized_crop(random, image);
    return {.box = {.top = static_cast<std::int32_t>(crop.top),
                    .left = static_cast<std::int32_t>(crop.left),
                    .height = static_cast<std::int32_t>(crop.height),
                    .width = static_cast<std::int32_t>(crop.width)}};
  }
  if (kind == "erasing") {
    PhiloxStream random = erasing_stream(1, 0, {.sample = i});
    return {.box = draw_erased_box(random, value, image)};
  }
  PhiloxStream random = mixing_stream(1, 0, i);
  return draw_mix(random,
                  {.mixup = kind == "cutmix" ? 0 : value, .cutmix = kind == "mixup" ? 0 : value},
                  image);
}

}  // namespace

/// box_dump crop|erasing|mixup|cutmix|both VALUE HEIGHT WIDTH COUNT: prints the boxes of COUNT
/// samples or pairs, one a line: weight, top, left, height, width. VALUE: alpha of mixup, CutMix or
/// both, or the probability of erasing.
int main(int, char** arguments) {
  const std::string_view kind = arguments[1];
  const double value = std::stod(arguments[2]);
  const ImageShape image{
      .channels = 3, .height = std::stoll(arguments[3]), .width = std::stoll(arguments[4])};
  const std::int64_t count = std::stoll(arguments[5]);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [partner, weight, box] = draw(kind, value, image, i);
    fmt::print("{} {} {} {} {}\n", weight, box.top, box.left, box.height, box.width);
  }
}
