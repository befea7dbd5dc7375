#include "lockstep/data/mix.hpp"

#include <fmt/format.h>

#include <string>

using namespace lockstep;

/// box_dump cutmix ALPHA HEIGHT WIDTH COUNT: prints the boxes of COUNT pairs, one a line: weight,
/// top, left, height, width.
int main(int, char** arguments) {
  const double value = std::stod(arguments[2]);
  const ImageShape image{
      .channels = 3, .height = std::stoll(arguments[3]), .width = std::stoll(arguments[4])};
  const std::int64_t count = std::stoll(arguments[5]);
  for (std::int64_t i = 0; i < count; ++i) {
    PhiloxStream random = mixing_stream(1, 0, i);
    const ImageMix mix = draw_mix(random, {.cutmix = value}, image);
    const PixelBox& box = mix.box;
    fmt::print("{} {} {} {} {}\n", mix.weight, box.top, box.left, box.height, box.width);
  }
}
