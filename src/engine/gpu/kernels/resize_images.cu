#include "kernels.hpp"
#include "launch.hpp"
#include "tap_table.hpp"

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
    const std::int64_t line = image.width * channels;
    std::uint8_t* const to = image.resized + (place.rest * extent.width + row.rest) * channels;
    const std::uint8_t* const from = image.pixels + region.top * line + region.left * channels;
    if (is_copied(region, extent)) {
      for (int c = 0; c < channels; ++c) to[c] = from[place.rest * line + row.rest * channels + c];
      return;
    }
    resample(from, line, table.taps(place.quotient, place.rest),
             table.taps(place.quotient, extent.height + row.rest), to);
  }

  /// In the order of the CPU's two passes.
  LOCKSTEP_HOST_DEVICE static void resample(const std::uint8_t* from, std::int64_t line,
                                            const TapTable::Taps& rows,
                                            const TapTable::Taps& columns, std::uint8_t* to) {
    from += rows.range.first * line + columns.range.first * channels;
    float values[channels] = {0.5F, 0.5F, 0.5F};  // so that the truncation below rounds
    for (std::int32_t i = 0; i < rows.range.count; ++i, from += line) {
      float sums[channels] = {};
      for (std::int32_t j = 0; j < columns.range.count; ++j) {
        const float weight = columns.weight(j);
        for (int c = 0; c < channels; ++c) {
          sums[c] += weight * static_cast<float>(from[j * channels + c]);
        }
      }
      const float weight = rows.weight(i);
      for (int c = 0; c < channels; ++c) values[c] += weight * sums[c];
    }
    for (int c = 0; c < channels; ++c) to[c] = to_pixel(values[c]);
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
