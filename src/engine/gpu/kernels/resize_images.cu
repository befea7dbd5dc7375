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
  const ImageResize* resizes;
  TapTable table;

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division row = divide(item, extent.width);
    const Division place = divide(row.quotient, extent.height);
    const DecodedImage image = images[place.quotient];
    const ImageResize resize = resizes[place.quotient];
    const std::int64_t line = image.width * channels;
    std::uint8_t* const to = image.resized + (place.rest * extent.width + row.rest) * channels;
    const std::uint8_t* const from =
        image.pixels + resize.rows.first * line + resize.columns.first * channels;
    if (is_copied(resize)) {
      const std::int64_t y = resize.rows.at + place.rest;
      const std::int64_t x = resize.columns.at + row.rest;
      for (int c = 0; c < channels; ++c) to[c] = from[y * line + x * channels + c];
      return;
    }
    resample({from, line, resize.filter == ResampleFilter::bicubic},
             table.taps(place.quotient, place.rest),
             table.taps(place.quotient, extent.height + row.rest), to);
  }

  struct Source {
    const std::uint8_t* from;
    std::int64_t line;  ///< bytes
    bool clamps;        ///< sums of rows
  };
  /// In the order of the CPU's two passes, which store the sums of rows.
  LOCKSTEP_HOST_DEVICE static void resample(const Source& source, const TapTable::Taps& rows,
                                            const TapTable::Taps& columns, std::uint8_t* to) {
    const std::uint8_t* from =
        source.from + rows.range.first * source.line + columns.range.first * channels;
    float values[channels] = {0.5F, 0.5F, 0.5F};  // so that the truncation below rounds
    for (std::int32_t i = 0; i < rows.range.count; ++i, from += source.line) {
      float sums[channels] = {};
      for (std::int32_t j = 0; j < columns.range.count; ++j) {
        const float weight = columns.weight(j);
        for (int c = 0; c < channels; ++c) {
          sums[c] += weight * static_cast<float>(from[j * channels + c]);
        }
      }
      const float weight = rows.weight(i);
      for (int c = 0; c < channels; ++c) {
        values[c] += weight * (source.clamps ? clamp_sum(sums[c]) : sums[c]);
      }
    }
    for (int c = 0; c < channels; ++c) to[c] = to_pixel(values[c]);
  }
};

}  // namespace

std::size_t resize_images_workspace(const ImageExtent& extent, std::int64_t most_taps) {
  return TapTable(extent, most_taps).bytes(extent.batch);
}

void resize_images(Stream stream, const ImageExtent& extent, const DecodedImages& decoded) {
  TapTable table(extent, decoded.most_taps);
  table.place(decoded.workspace, extent.batch);
  launch(stream, extent.batch * table.positions,
         SetTaps<ImageResize>{extent, decoded.resizes, table});
  launch(stream, extent.batch * extent.height * extent.width,
         ResizeImages{extent, decoded.images, decoded.resizes, table});
}

}  // namespace lockstep::gpu
