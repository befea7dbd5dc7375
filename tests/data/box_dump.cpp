#include "lockstep/data/augment.hpp"
#include "lockstep/data/mix.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>

using namespace lockstep;

/// box_dump cutmix|erasing VALUE HEIGHT WIDTH COUNT: prints the boxes of COUNT pairs or samples,
/// one a line: weight, top, left, height, width. VALUE: alpha, or the probability of erasing.
int main(int, char** arguments) {
  const std::string_view kind = arguments[1];
  const double value = std::stod(arguments[2]);
  const ImageShape image{
      .channels = 3, .height = std::stoll(arguments[3]), .width = std::stoll(arguments[4])};
  const std::int64_t count = std::stoll(arguments[5]);
  for (std::int64_t i = 0; i < count; ++i) {
    ImageMix mix;
    if (kind == "cutmix") {
      PhiloxStream random = mixing_stream(1, 0, i);
      mix = draw_mix(random, {.cutmix = value}, image);
    } else {
      PhiloxStream random = erasing_stream(1, 0, {.sample = i});
      mix.box = draw_erased_box(random, value, image);
    }
    const PixelBox& box = mix.box;
    fmt::print("{} {} {} {} {}\n", mix.weight, box.top, box.left, box.height, box.width);
  }
}
