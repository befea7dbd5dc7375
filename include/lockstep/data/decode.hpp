#pragma once

#include "lockstep/core/image_shape.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Pixels of one image, uint8 (H, W, C). Decoders reuse the buffer.
struct Image {
  ImageShape shape;
  std::vector<std::byte> pixels;
};

/// A rectangle of an image, in pixels.
struct Region {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

/// Images with more pixels (height times width) are rejected before memory is allocated.
inline constexpr std::int64_t max_image_pixels = std::int64_t{1} << 26;

/// Decodes regions of JPEG files, to 1 (grey) or 3 (RGB) channels, converting grey, RGB and CMYK as
/// needed. Error(bad_input) if a file is damaged, truncated, too large, too short for the size in
/// its header, or has more than 100 scans, which take time without bytes; its text does not name
/// the sample, so the caller adds the name.
class JpegDecoder final {
 public:
  JpegDecoder();
  ~JpegDecoder();
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header of `file`, which must stay alive until decode() has returned. Returns the
  /// shape of the whole image.
  [[nodiscard]] ImageShape open(std::span<const std::byte> file, std::int64_t channels);
  /// Whether a GPU's decoder decodes the opened file to nearly the same pixels: a whole baseline
  /// file of 8-bit YCbCr with usual subsampling in one scan. The opened file is not changed.
  [[nodiscard]] bool is_plain() const noexcept;
  /// Decodes `region` of the opened file once, to the same pixels as when the whole image is
  /// decoded. `image` also holds pixels around the region, which may differ; returns the region's
  /// place in it. Reads the file only as far as needed, so it finds no damage below the region.
  Region decode(const Region& region, Image& image);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes a whole JPEG file to `channels` = 1 (grey) or 3 (RGB) channels, converting grey, RGB and
/// CMYK as needed. Error(bad_input) if the file is damaged, truncated or too large; its text does
/// not name the sample, so the caller adds the name.
void decode_jpeg(std::span<const std::byte> file, std::int64_t channels, Image& image);

/// Decodes a whole PNG file to RGB, with the same errors. As in torchvision's ImageFolder, alpha is
/// dropped and gamma and colour profiles are ignored. Of 16 bits the high byte is kept, and an
/// index beyond the palette is black.
void decode_png(std::span<const std::byte> file, Image& image);

}  // namespace lockstep
