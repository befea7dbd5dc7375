#include "kernels.hpp"
#include "launch.hpp"
#include "tap_table.hpp"
#include "vector_io.hpp"

// Compiled without contraction, so that resampling is bit-identical to the CPU's.
namespace lockstep::gpu {
namespace {

/// One item per 16 bytes of an output pixel.
template <typename T, bool mixes>
struct CutImages {
  static constexpr int item_size = packed_size<T>;
  ImageExtent extent;
  std::int64_t items_per_pixel;
  StoredImages stored;
  TapTable table;
  T* out;

  /// Pixel (y, x) of an output image, and `channels` of its channels from `first` on.
  struct Place {
    std::int64_t y;
    std::int64_t x;
    std::int64_t first;
    int channels;
  };

  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const Division pixel = divide(item, items_per_pixel);
    const std::int64_t first = pixel.rest * item_size;
    const Division row = divide(pixel.quotient, extent.width);
    const Division place = divide(row.quotient, extent.height);
    const std::int64_t image = place.quotient;
    const int channels = static_cast<int>(
        extent.channels - first < item_size ? extent.channels - first : std::int64_t{item_size});
    Floats<item_size> values = filled<item_size>(0);  // whole items, to stay in registers
    if (image < stored.count) {
      const Place at{.y = place.rest, .x = row.rest, .first = first, .channels = channels};
      if constexpr (mixes) {
        values = mixed(image, at);
      } else {
        values = normalised(image, at);
      }
    }
    store<item_size>(out + item * item_size, values);
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Floats<item_size> mixed(std::int64_t image,
                                                             const Place& at) const {
    Floats<item_size> values = filled<item_size>(0);
    // A loop, because two copies of normalised() need too many registers.
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (int source = 0; source < 2; ++source) {
      const ImageMix mix = stored.mixes[image];
      const bool is_mean = mix.partner != image && mix.box.is_empty();
      if (source == 1 && !is_mean) break;
      const bool is_partner = source == 1 || mix.box.contains(at.y, at.x);
      const Floats<item_size> read = normalised(is_partner ? std::int64_t{mix.partner} : image, at);
      const float weight = !is_mean ? 1.0F : source == 1 ? 1.0F - mix.weight : mix.weight;
      for (int c = 0; c < item_size; ++c) values[c] += weight * read[c];
    }
    return values;
  }

  [[nodiscard]] LOCKSTEP_HOST_DEVICE Floats<item_size> normalised(std::int64_t image,
                                                                  const Place& at) const {
    Floats<item_size> values = filled<item_size>(0);
    if (stored.erased != nullptr && stored.erased[image].contains(at.y, at.x)) return values;
    const PixelCut cut = stored.cuts[image];
    const std::int64_t x = cut.flip != 0 ? extent.width - 1 - at.x : at.x;
    const std::uint8_t* const from =
        stored.data + image * stored.height * stored.width * extent.channels + at.first;
    if (cut.height == extent.height && cut.width == extent.width) {
      copy(from, cut.top + at.y, cut.left + x, at.channels, values);
    } else {
      resample(from, cut, table.taps(image, at.y), table.taps(image, extent.height + x),
               at.channels, values);
    }
    for (int c = 0; c < item_size; ++c) {
      values[c] = c < at.channels
                      ? stored.values[(at.first + c) * 256 + static_cast<std::int64_t>(values[c])]
                      : 0.0F;
    }
    return values;
  }

  LOCKSTEP_HOST_DEVICE void copy(const std::uint8_t* from, std::int64_t y, std::int64_t x,
                                 int channels, Floats<item_size>& values) const {
    if (y < 0 || x < 0 || y >= stored.height || x >= stored.width) return;
    const std::uint8_t* const at = from + (y * stored.width + x) * extent.channels;
    for (int c = 0; c < item_size; ++c) {
      if (c < channels) values[c] = static_cast<float>(at[c]);
    }
  }

  /// In the order of the CPU's two passes, which store the sums of rows.
  LOCKSTEP_HOST_DEVICE void resample(const std::uint8_t* from, const PixelCut& cut,
                                     const TapTable::Taps& rows, const TapTable::Taps& columns,
                                     int channels, Floats<item_size>& values) const {
    const bool clamps = cut.filter == ResampleFilter::bicubic;
    for (int c = 0; c < item_size; ++c) values[c] = 0.5F;  // so that the truncation below rounds
    for (std::int32_t i = 0; i < rows.range.count; ++i) {
      const std::uint8_t* const line = from + ((cut.top + rows.range.first + i) * stored.width +
                                               cut.left + columns.range.first) *
                                                  extent.channels;
      Floats<item_size> sums = filled<item_size>(0);
      for (std::int32_t j = 0; j < columns.range.count; ++j) {
        const float weight = columns.weight(j);
        for (int c = 0; c < item_size; ++c) {
          if (c >= channels) break;
          sums[c] += weight * static_cast<float>(line[j * extent.channels + c]);
        }
      }
      const float weight = rows.weight(i);
      for (int c = 0; c < item_size; ++c) {
        values[c] += weight * (clamps ? clamp_sum(sums[c]) : sums[c]);
      }
    }
    for (int c = 0; c < item_size; ++c) values[c] = static_cast<float>(to_pixel(values[c]));
  }
};

/// For cuts of any filter from stored images of height x width.
TapTable table_of(const ImageExtent& extent, std::int64_t height, std::int64_t width) {
  constexpr ResampleFilter widest = ResampleFilter::bicubic;
  return {extent, std::max(ResampleTaps::most(height, extent.height, widest),
                           ResampleTaps::most(width, extent.width, widest))};
}

}  // namespace

std::size_t cut_images_workspace(const ImageExtent& extent, std::int64_t height,
                                 std::int64_t width) {
  return table_of(extent, height, width).bytes(extent.batch);
}

void cut_images(Stream stream, DataType type, const ImageExtent& extent, const StoredImages& stored,
                void* out) {
  TapTable table = table_of(extent, stored.height, stored.width);
  table.place(stored.workspace, extent.batch);
  launch(stream, stored.count * table.positions, SetTaps<PixelCut>{extent, stored.cuts, table});
  with_type(type, [&]<typename T>(T*) {
    const std::int64_t items_per_pixel = extent.padded / packed_size<T>;
    with_flags(
        [&]<bool mixes>() {
          launch(stream, extent.batch * extent.height * extent.width * items_per_pixel,
                 CutImages<T, mixes>{extent, items_per_pixel, stored, table, static_cast<T*>(out)});
        },
        stored.mixes != nullptr);
  });
}

}  // namespace lockstep::gpu
