#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"

#include <algorithm>
#include <cassert>
#include <csetjmp>
#include <cstdio>
#include <new>
#include <string>
#include <utility>

// jpeglib.h needs size_t and FILE from above.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep {
namespace {

/// Scans of one file: each costs a pass over all coefficients, however few bytes it has. cjpeg and
/// jpegtran, which write them by a user's script, have the same limit; usual files have up to 12.
constexpr int most_scans = 100;

/// libjpeg reports a fault by a callback that must not return; it jumps back to guarded().
struct Faults {
  jpeg_error_mgr manager{};
  jpeg_progress_mgr progress{};
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

/// libjpeg calls this between rows while it reads scans ahead of the pixels.
void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= most_scans) return;
  auto* faults = reinterpret_cast<Faults*>(info->err);
  std::snprintf(faults->text, sizeof(faults->text), "more than %d scans", most_scans);
  std::longjmp(faults->back, 1);
}

/// Calls `work`, which calls libjpeg and keeps no object with a destructor. False after a fault.
template <typename Work>
bool guarded(Faults& faults, const Work& work) {
  if (setjmp(faults.back) != 0) return false;
  work();
  return true;
}

/// a * b / 255, rounded to nearest.
std::uint32_t product(std::uint32_t a, std::uint32_t b) noexcept {
  return (a * b + 127) / 255;
}

/// Converts CMYK to RGB or grey, in place, to the pixels of Pillow's convert(): ink is taken as
/// inverted, as Adobe's programs store it, whatever the file's marker says.
void flatten_cmyk(std::int64_t channels, Image& image) {
  auto* pixels = reinterpret_cast<std::uint8_t*>(image.pixels.data());
  const std::int64_t count = image.shape.height * image.shape.width;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t light = pixels[i * 4 + 3];
    std::uint32_t rgb[3];
    for (int c = 0; c < 3; ++c) rgb[c] = light - product(255U - pixels[i * 4 + c], light);
    if (channels == 1) {
      pixels[i] = static_cast<std::uint8_t>(
          (19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16U);
    } else {
      for (int c = 0; c < 3; ++c) pixels[i * 3 + c] = static_cast<std::uint8_t>(rgb[c]);
    }
  }
  image.pixels.resize(static_cast<std::size_t>(count * channels));
}

/// Pixels beside a region from which libjpeg interpolates colours at its edges.
constexpr std::int64_t edge = 2;

}  // namespace

struct JpegDecoder::State {
  Faults faults;
  jpeg_decompress_struct info{};
  std::int64_t channels = 0;
  std::span<const std::byte> file;

  [[noreturn]] void fail_damaged() {
    jpeg_abort_decompress(&info);
    if (info.err->msg_code == JERR_OUT_OF_MEMORY) throw std::bad_alloc();
    fail(ExitStatus::bad_input, "not a whole JPEG file ({}); replace it",
         static_cast<const char*>(faults.text));
  }
  /// Whether the file can hold the blocks that its header names: with Huffman's codes, each takes a
  /// bit at least. Memory is taken by the header, before the blocks are read.
  [[nodiscard]] bool can_hold_blocks() const noexcept {
    if (info.arith_code != FALSE) return true;
    std::uint64_t blocks = 0;
    for (int i = 0; i < info.num_components; ++i) {
      const jpeg_component_info& component = info.comp_info[i];
      blocks += std::uint64_t{component.width_in_blocks} * component.height_in_blocks;
    }
    return blocks / 8 <= file.size();
  }
  [[nodiscard]] bool is_cmyk() const noexcept {
    return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  }
};

JpegDecoder::JpegDecoder() : state_(new State) {
  State& self = *state_;
  self.info.err = jpeg_std_error(&self.faults.manager);
  self.faults.manager.error_exit = jump_back;
  self.faults.manager.emit_message = on_message;
  self.faults.manager.output_message = on_output;
  self.faults.progress.progress_monitor = on_progress;
  if (!guarded(self.faults, [&] { jpeg_create_decompress(&self.info); })) {
    fail(ExitStatus::internal, "libjpeg cannot be used ({}); check its version",
         static_cast<const char*>(self.faults.text));
  }
  self.info.progress = &self.faults.progress;
}

JpegDecoder::~JpegDecoder() {
  jpeg_destroy_decompress(&state_->info);
}

ImageShape JpegDecoder::open(std::span<const std::byte> file, std::int64_t channels) {
  if (channels != 1 && channels != 3) {
    fail(ExitStatus::usage,
         "JPEG images cannot have {} channels (1 or 3 can be read); use --channels 3", channels);
  }
  State& self = *state_;
  jpeg_abort_decompress(&self.info);
  self.channels = channels;
  self.file = file;
  const bool read = guarded(self.faults, [&] {
    jpeg_mem_src(&self.info, reinterpret_cast<const unsigned char*>(file.data()),
                 static_cast<unsigned long>(file.size()));
    jpeg_read_header(&self.info, TRUE);
  });
  if (!read) self.fail_damaged();
  const ImageShape shape{
      .channels = channels, .height = self.info.image_height, .width = self.info.image_width};
  if (shape.height * shape.width > max_image_pixels) {
    fail(ExitStatus::bad_input,
         "a JPEG image of {}x{} pixels (at most {} can be decoded); shrink it", shape.height,
         shape.width, max_image_pixels);
  }
  if (!self.can_hold_blocks()) {
    fail(ExitStatus::bad_input,
         "not a whole JPEG file ({} bytes cannot hold {}x{} pixels); replace it", file.size(),
         shape.height, shape.width);
  }
  return shape;
}

bool JpegDecoder::is_plain() const noexcept {
  const State& self = *state_;
  const jpeg_decompress_struct& info = self.info;
  if (self.channels != 3 || info.jpeg_color_space != JCS_YCbCr || info.num_components != 3 ||
      info.comps_in_scan != 3 || info.data_precision != 8 || info.progressive_mode != FALSE ||
      info.arith_code != FALSE) {
    return false;
  }
  const auto samples = [&](int component) {
    const jpeg_component_info& each = info.comp_info[component];
    return std::pair(each.h_samp_factor, each.v_samp_factor);
  };
  const auto [columns, rows] = samples(0);
  if (columns > 2 || rows > 2 || samples(1) != std::pair(1, 1) || samples(2) != std::pair(1, 1)) {
    return false;
  }
  // A truncated file has no end marker.
  constexpr std::byte marker{0xFF};
  constexpr std::byte end{0xD9};
  const std::size_t bytes = self.file.size();
  return bytes >= 2 && self.file[bytes - 2] == marker && self.file[bytes - 1] == end;
}

Region JpegDecoder::decode(const Region& region, Image& image) {
  State& self = *state_;
  jpeg_decompress_struct& info = self.info;
  assert(region.top >= 0 && region.top + region.height <= std::int64_t{info.image_height});
  assert(region.left >= 0 && region.left + region.width <= std::int64_t{info.image_width});
  // libjpeg cannot convert CMYK to RGB, so read it unconverted, four bytes per pixel.
  const bool cmyk = self.is_cmyk();
  const std::int64_t stored = cmyk ? 4 : self.channels;
  info.out_color_space = cmyk ? JCS_CMYK : self.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  const std::int64_t first = std::max<std::int64_t>(region.left - edge, 0);
  const std::int64_t last =
      std::min<std::int64_t>(region.left + region.width + edge, info.image_width);
  auto left = static_cast<JDIMENSION>(first);
  auto width = static_cast<JDIMENSION>(last - first);
  const bool started = guarded(self.faults, [&] {
    jpeg_start_decompress(&info);
    if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
  });
  if (!started) self.fail_damaged();
  image.shape = {.channels = self.channels, .height = region.height, .width = width};
  const std::int64_t row_bytes = image.shape.width * stored;
  image.pixels.resize(static_cast<std::size_t>(region.height * row_bytes));
  const bool decoded = guarded(self.faults, [&] {
    if (region.top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(region.top));
    auto* row = reinterpret_cast<JSAMPLE*>(image.pixels.data());
    for (std::int64_t y = 0; y < region.height; ++y, row += row_bytes) {
      jpeg_read_scanlines(&info, &row, 1);
    }
    if (info.output_scanline == info.output_height) jpeg_finish_decompress(&info);
  });
  if (!decoded) self.fail_damaged();
  jpeg_abort_decompress(&info);
  if (cmyk) flatten_cmyk(self.channels, image);
  return {.top = 0, .left = region.left - left, .height = region.height, .width = region.width};
}

void decode_jpeg(std::span<const std::byte> file, std::int64_t channels, Image& image) {
  JpegDecoder decoder;
  const ImageShape shape = decoder.open(file, channels);
  decoder.decode({.height = shape.height, .width = shape.width}, image);
}

}  // namespace lockstep
