#include "kernels.hpp"
#include "launch.hpp"
#include "tap_table.hpp"

#include <algorithm>

// Compiled without contraction, so that resampling is bit-identical to the CPU's.
namespace lockstep::gpu {
namespace {

/// One item per output pixel.
struct ResizeImages {
  static constexpr int channels = 3;
  ImageExtent extent;
  const DecodedImage* images;
  const PixelCut* regions;
  TapTable table;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division row = divide(item, extent.width);
    const Division place = divide(row.quotient, extent.height);
    const DecodedImage image = images[place.quotient];
    const PixelCut region = regions[place.quotient];
    std::uint8_t* const to = image.resized + (place.rest * extent.width + row.rest) * channels;
    if (is_copied(region, extent)) {
      const std::uint8_t* const from =
          image.pixels +
          ((region.top + place.rest) * image.width + region.left + row.rest) * channels;
      for (int c = 0; c < channels; ++c) to[c] = from[c];
      return;
    }
    Floats<channels> values = filled<channels>(0);
    resample_pixel<channels>(
        {image.pixels, image.width, channels}, region, table.taps(place.quotient, place.rest),
        table.taps(place.quotient, extent.height + row.rest), channels, values);
    for (int c = 0; c < channels; ++c) to[c] = static_cast<std::uint8_t>(values[c]);
  }
};

}  // namespace

std::size_t resize_images_workspace(const ImageExtent& extent, std::int64_t height,
                                    std::int64_t width) {
  return TapTable(extent, height, width).bytes(extent.batch);
}

void resize_images(Stream stream, const ImageExtent& extent, const DecodedImages& decoded) {
  TapTable table(extent, decoded.height, decoded.width);
  table.place(decoded.workspace, extent.batch);
  launch(stream, extent.batch * table.positions, SetTaps{extent, decoded.regions, table});
  launch(stream, extent.batch * extent.height * extent.width,
         ResizeImages{extent, decoded.images, decoded.regions, table});
}

}  // namespace lockstep::gpu
