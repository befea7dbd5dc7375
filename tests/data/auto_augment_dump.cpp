#include "lockstep/data/auto_augment.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

using namespace lockstep;

namespace {

/// For each line "OP MAGNITUDE INTERPOLATION HEIGHT WIDTH CHANNELS" and a newline on standard
/// input, applies the operation to the pixels that follow, and writes the result's.
void apply() {
  AutoAugmenter augmenter;
  Image image;
  int op = 0;
  double magnitude = 0;
  int interpolation = 0;
  ImageShape& shape = image.shape;
  while (std::cin >> op >> magnitude >> interpolation >> shape.height >> shape.width >>
         shape.channels) {
    std::cin.get();
    image.pixels.resize(static_cast<std::size_t>(shape.height * shape.width * shape.channels));
    std::cin.read(reinterpret_cast<char*>(image.pixels.data()), std::ssize(image.pixels));
    augmenter.apply({.op = static_cast<ImageOp>(op), .magnitude = magnitude},
                    static_cast<Interpolation>(interpolation), image);
    std::fwrite(image.pixels.data(), 1, image.pixels.size(), stdout);
  }
}

}  // namespace

/// auto_augment_dump apply: as above.
/// auto_augment_dump trivialaugment|randaugment HEIGHT WIDTH COUNT MAGNITUDE BINS: prints the
/// operations of COUNT samples, one a line: operation, magnitude.
int main(int, char** arguments) {
  const std::string_view mode = arguments[1];
  if (mode == "apply") {
    apply();
    return 0;
  }
  const ImageShape image{
      .channels = 3, .height = std::stoll(arguments[2]), .width = std::stoll(arguments[3])};
  const std::int64_t count = std::stoll(arguments[4]);
  const AutoAugmentOptions options{.magnitude = std::stoll(arguments[5]),
                                   .bins = std::stoll(arguments[6])};
  for (std::int64_t i = 0; i < count; ++i) {
    PhiloxStream random = auto_augment_stream(1, 0, {.sample = i});
    const DrawnOp drawn = mode == "trivialaugment" ? draw_trivial_augment(random)
                                                   : draw_rand_augment(random, options, image);
    fmt::print("{} {}\n", static_cast<int>(drawn.op), drawn.magnitude);
  }
}
