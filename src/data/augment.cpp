#include "lockstep/data/augment.hpp"

#include "box_rows.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

/// The columns of a window of `width` that lie inside an image of `image_width`.
struct InnerColumns {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t first;  ///< the image's column of `begin`; a mirrored row is read backward from it

  InnerColumns(const Window& window, std::int64_t image_width, std::int64_t width) noexcept
      : begin(std::clamp<std::int64_t>(
            window.flip ? window.left + width - image_width : -window.left, 0, width)),
        end(std::clamp<std::int64_t>(window.flip ? window.left + width : image_width - window.left,
                                     begin, width)),
        first(window.flip ? window.left + width - 1 - begin : window.left + begin) {}
};

/// Looks up a row of one-channel pixels, which are adjacent; step -1 mirrors the row.
template <int step>
void look_up(const float* table, const std::uint8_t* from, std::int64_t count, float* to) noexcept {
  constexpr std::int64_t at_once = 8;
  std::int64_t i = 0;
  for (; i + at_once <= count; i += at_once, from += step * at_once) {
    for (std::int64_t k = 0; k < at_once; ++k) to[i + k] = table[from[step * k]];
  }
  for (; i < count; ++i, from += step) to[i] = table[*from];
}

}  // namespace

Window draw_crop_flip(PhiloxStream& random, const ImageShape& image, const ImageShape& target,
                      std::int64_t padding) noexcept {
  const auto draw = [&](std::int64_t extent, std::int64_t wanted) {
    const std::int64_t room = extent + 2 * padding - wanted;
    assert(room >= 0);
    return std::int64_t{random.next_below(static_cast<std::uint32_t>(room + 1))} - padding;
  };
  Window window;
  window.top = draw(image.height, target.height);
  window.left = draw(image.width, target.width);
  window.flip = random.next_below(2) == 1;
  return window;
}

Region draw_resized_crop(PhiloxStream& random, const ImageShape& image) noexcept {
  constexpr double smallest_ratio = 3.0 / 4.0;
  constexpr double largest_ratio = 4.0 / 3.0;
  const auto height = static_cast<double>(image.height);
  const auto width = static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = height * width * (0.08 + 0.92 * random.next_double());
    const double span = std::log(largest_ratio) - std::log(smallest_ratio);
    const double ratio = std::exp(std::log(smallest_ratio) + span * random.next_double());
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (w < 1 || h < 1 || w > image.width || h > image.height) continue;
    const auto top = random.next_below(static_cast<std::uint32_t>(image.height - h + 1));
    const auto left = random.next_below(static_cast<std::uint32_t>(image.width - w + 1));
    return {.top = top, .left = left, .height = h, .width = w};
  }
  std::int64_t h = image.height;
  std::int64_t w = image.width;
  if (width / height < smallest_ratio) {
    h = static_cast<std::int64_t>(std::nearbyint(width / smallest_ratio));
  } else if (width / height > largest_ratio) {
    w = static_cast<std::int64_t>(std::nearbyint(height * largest_ratio));
  }
  h = std::clamp<std::int64_t>(h, 1, image.height);
  w = std::clamp<std::int64_t>(w, 1, image.width);
  return {.top = (image.height - h) / 2, .left = (image.width - w) / 2, .height = h, .width = w};
}

PixelBox draw_erased_box(PhiloxStream& random, double probability,
                         const ImageShape& image) noexcept {
  constexpr double smallest_area = 0.02;
  constexpr double largest_area = 0.33;
  const double log_smallest_ratio = std::log(0.3);
  const double log_largest_ratio = std::log(3.3);
  if (random.next_double() >= probability) return {};
  const double whole = static_cast<double>(image.height) * static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area =
        whole * (smallest_area + (largest_area - smallest_area) * random.next_double());
    const double ratio = std::exp(log_smallest_ratio +
                                  (log_largest_ratio - log_smallest_ratio) * random.next_double());
    const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (height >= image.height || width >= image.width) continue;
    const auto top = random.next_below(static_cast<std::uint32_t>(image.height - height + 1));
    const auto left = random.next_below(static_cast<std::uint32_t>(image.width - width + 1));
    return {.top = static_cast<std::int32_t>(top),
            .left = static_cast<std::int32_t>(left),
            .height = static_cast<std::int32_t>(height),
            .width = static_cast<std::int32_t>(width)};
  }
  return {};
}

void erase_box(const PixelBox& box, const ImageShape& image, ImageLayout layout,
               float* values) noexcept {
  for_each_row(box, image, layout, [values](std::int64_t begin, std::int64_t size) {
    std::fill_n(values + begin, size, 0.0F);
  });
}

void copy_window(std::span<const std::byte> pixels, const ImageShape& shape, const Window& window,
                 Image& result) {
  const std::int64_t channels = shape.channels;
  const auto [height, width] = std::pair(result.shape.height, result.shape.width);
  assert(result.shape.channels == channels);
  result.pixels.assign(static_cast<std::size_t>(height * width * channels), std::byte{0});
  const InnerColumns columns(window, shape.width, width);
  if (columns.begin == columns.end) return;
  for (std::int64_t y = std::max<std::int64_t>(0, -window.top);
       y < std::min(height, shape.height - window.top); ++y) {
    const std::byte* from =
        pixels.data() + ((window.top + y) * shape.width + columns.first) * channels;
    std::byte* to = result.pixels.data() + (y * width + columns.begin) * channels;
    if (!window.flip) {
      std::copy_n(from, (columns.end - columns.begin) * channels, to);
      continue;
    }
    for (std::int64_t x = columns.begin; x < columns.end; ++x, from -= channels) {
      to = std::copy_n(from, channels, to);
    }
  }
}

Normalizer::Normalizer(std::span<const float> mean, std::span<const float> std)
    : channels_(static_cast<std::int64_t>(mean.size())), table_(mean.size() * 256) {
  assert(mean.size() == std.size());
  for (std::size_t c = 0; c < mean.size(); ++c) {
    for (std::size_t value = 0; value < 256; ++value) {
      table_[c * 256 + value] = (static_cast<float>(value) / 255.0F - mean[c]) / std[c];
    }
  }
}

void Normalizer::write(std::span<const std::byte> pixels, const ImageShape& shape,
                       const Window& window, const Target& target, float* out) const noexcept {
  assert(shape.channels == channels_ && target.shape.channels == channels_);
  const std::int64_t height = target.shape.height;
  const std::int64_t width = target.shape.width;
  const auto* source = reinterpret_cast<const std::uint8_t*>(pixels.data());
  const auto [begin, end, first] = InnerColumns(window, shape.width, width);
  const std::int64_t stride = window.flip ? -channels_ : channels_;
  // Strides of the target: nchw writes planes, nhwc writes pixels.
  const bool planes = target.layout == ImageLayout::nchw;
  const std::int64_t channel_step = planes ? height * width : 1;
  const std::int64_t column_step = planes ? 1 : channels_;

  for (std::int64_t c = 0; c < channels_; ++c) {
    const float* table = table_.data() + c * 256;
    for (std::int64_t y = 0; y < height; ++y) {
      float* row = out + c * channel_step + y * width * column_step;
      const std::int64_t source_y = window.top + y;
      const bool inside = source_y >= 0 && source_y < shape.height;
      const std::int64_t from_x = inside ? begin : width;
      const std::int64_t to_x = inside ? end : width;
      for (std::int64_t x = 0; x < from_x; ++x) row[x * column_step] = table[0];
      if (from_x < to_x) {
        const std::uint8_t* from = source + (source_y * shape.width + first) * channels_ + c;
        if (planes && stride == 1) {
          look_up<1>(table, from, to_x - from_x, row + from_x);
        } else if (planes && stride == -1) {
          look_up<-1>(table, from, to_x - from_x, row + from_x);
        } else if (planes) {
          for (std::int64_t x = from_x; x < to_x; ++x, from += stride) row[x] = table[*from];
        } else {
          float* to = row + from_x * channels_;
          for (std::int64_t x = from_x; x < to_x; ++x, from += stride, to += channels_) {
            *to = table[*from];
          }
        }
      }
      for (std::int64_t x = to_x; x < width; ++x) row[x * column_step] = table[0];
    }
  }
}

}  // namespace lockstep
