#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace lockstep;

void dump(const std::string& directory, std::int64_t size, std::int64_t short_side,
          ResizeFilter filter) {
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory, "val", *comm);
  const auto loader = make_loader(*dataset,
                                  {.image = {.channels = 3, .height = size, .width = size},
                                   .format = {.layout = ImageLayout::nhwc},
                                   .mean = {0, 0, 0},
                                   .std = {1, 1, 1},
                                   .short_side = short_side,
                                   .filter = filter,
                                   .batch_capacity = 1,
                                   .threads = 0,
                                   .shuffle = false},
                                  [&](std::int64_t n) -> std::optional<BatchRequest> {
                                    if (n == dataset->info().samples) return std::nullopt;
                                    return BatchRequest{.epoch = 0, .first = n, .count = 1};
                                  });
  std::vector<unsigned char> pixels(static_cast<std::size_t>(3 * size * size));
  while (const auto loaded = loader->next()) {
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<unsigned char>(std::lround(loaded->batch.values[i] * 255));
    }
    std::fwrite(pixels.data(), 1, pixels.size(), stdout);
  }
}

}  // namespace

/// evaluation_dump DIR SIZE RESIZE FILTER: writes the pixels (N, SIZE, SIZE, 3), uint8, that an
/// evaluation on split `val` of a directory sees with --eval-size SIZE, --eval-resize RESIZE, or
/// the default if it is 0, and --eval-interpolation FILTER. Exits with the status of an error.
int main(int, char** arguments) {
  try {
    dump(arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3]),
         std::string(arguments[4]) == "bicubic" ? ResizeFilter::bicubic : ResizeFilter::bilinear);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
