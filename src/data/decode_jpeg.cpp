#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"

#include <csetjmp>
#include <cstdio>
#include <string>

// jpeglib.h needs size_t and FILE from above.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep {
namespace {

/// libjpeg reports a fault by a callback that must not return; it jumps back to decode().
struct Faults {
  jpeg_error_mgr manager{};
  std::jmp_buf back{};
  char text[JMSG_LENGTH_MAX]{};
};

[[noreturn]] void jump_back(j_common_ptr info) {
  auto* faults = reinterpret_cast<Faults*>(info->err);
  info->err->format_message(info, faults->text);
  std::longjmp(faults->back, 1);
}

void on_message(j_common_ptr info, int level) {
  // libjpeg would fill a truncated file with grey. Other warnings are common in real data sets.
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) jump_back(info);
}

void on_output(j_common_ptr) {}

enum class Outcome { decoded, damaged, too_large };

/// No object with a destructor may be alive between setjmp and longjmp.
Outcome decode(std::span<const std::byte> file, std::int64_t channels, Image& image,
               jpeg_decompress_struct& info, Faults& faults) {
  if (setjmp(faults.back) != 0) return Outcome::damaged;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()),
               static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  const auto height = static_cast<std::int64_t>(info.image_height);
  const auto width = static_cast<std::int64_t>(info.image_width);
  if (height * width > max_image_pixels) return Outcome::too_large;
  // libjpeg cannot convert CMYK to RGB, so read it unconverted, four bytes per pixel.
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  const std::int64_t stored = cmyk ? 4 : channels;
  info.out_color_space = cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  image.shape = {.channels = channels, .height = height, .width = width};
  image.pixels.resize(static_cast<std::size_t>(height * width * stored));
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    auto* row = reinterpret_cast<JSAMPLE*>(image.pixels.data()) +
                static_cast<std::int64_t>(info.output_scanline) * width * stored;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  return Outcome::decoded;
}

/// Converts CMYK to RGB or grey, in place. Adobe's programs, which write nearly all such files,
/// store it inverted.
void flatten_cmyk(std::int64_t channels, bool inverted, Image& image) {
  auto* pixels = reinterpret_cast<std::uint8_t*>(image.pixels.data());
  const std::int64_t count = image.shape.height * image.shape.width;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t ink[4];
    for (int c = 0; c < 4; ++c) {
      const std::uint32_t value = pixels[i * 4 + c];
      ink[c] = inverted ? value : 255 - value;
    }
    std::uint32_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = ink[c] * ink[3] / 255;
    if (channels == 1) {
      pixels[i] = static_cast<std::uint8_t>((299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000);
    } else {
      for (int c = 0; c < 3; ++c) pixels[i * 3 + c] = static_cast<std::uint8_t>(rgb[c]);
    }
  }
  image.pixels.resize(static_cast<std::size_t>(count * channels));
}

}  // namespace

void decode_jpeg(std::span<const std::byte> file, std::int64_t channels, Image& image) {
  if (channels != 1 && channels != 3) {
    fail(ExitStatus::usage,
         "JPEG images cannot have {} channels (1 or 3 can be read); use --channels 3", channels);
  }
  Faults faults;
  jpeg_decompress_struct info{};
  info.err = jpeg_std_error(&faults.manager);
  faults.manager.error_exit = jump_back;
  faults.manager.emit_message = on_message;
  faults.manager.output_message = on_output;
  const Outcome outcome = decode(file, channels, image, info, faults);
  const bool cmyk = info.out_color_space == JCS_CMYK;
  const bool inverted = info.saw_Adobe_marker != FALSE;
  const std::int64_t height = info.image_height;
  const std::int64_t width = info.image_width;
  jpeg_destroy_decompress(&info);
  if (outcome == Outcome::too_large) {
    fail(ExitStatus::bad_input,
         "a JPEG image of {}x{} pixels (at most {} can be decoded); shrink it", height, width,
         max_image_pixels);
  }
  if (outcome == Outcome::damaged) {
    fail(ExitStatus::bad_input, "not a whole JPEG file ({}); replace it",
         static_cast<const char*>(faults.text));
  }
  if (cmyk) flatten_cmyk(channels, inverted, image);
}

}  // namespace lockstep
