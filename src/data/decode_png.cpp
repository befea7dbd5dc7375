#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"

#include <png.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <new>

namespace lockstep {
namespace {

constexpr std::int64_t rgb = 3;
/// Of deflate. Memory is taken by the header, before the pixels are read.
constexpr std::uint64_t most_expansion = 1032;

/// What libpng's callbacks see. A fault must not return; it jumps back to guarded().
struct Source {
  std::span<const std::byte> rest;
  bool lacks_memory = false;
  std::jmp_buf back{};
  char text[128]{};
};

[[noreturn]] void jump_back(png_structp png, png_const_charp text) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::strncpy(source->text, text, sizeof(source->text) - 1);
  std::longjmp(source->back, 1);
}

png_voidp allocate(png_structp png, png_alloc_size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) static_cast<Source*>(png_get_mem_ptr(png))->lacks_memory = true;
  return memory;
}

void release(png_structp /*png*/, png_voidp memory) {
  std::free(memory);
}

void on_warning(png_structp /*png*/, png_const_charp /*text*/) {}

void read_bytes(png_structp png, png_bytep bytes, std::size_t size) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (size > source->rest.size()) png_error(png, "the file ends early");
  std::memcpy(bytes, source->rest.data(), size);
  source->rest = source->rest.subspan(size);
}

/// Calls `work`, which calls libpng and keeps no object with a destructor. False after a fault.
template <typename Work>
bool guarded(Source& source, const Work& work) {
  if (setjmp(source.back) != 0) return false;
  work();
  return true;
}

/// libpng's objects for reading one file.
class Reader final {
 public:
  explicit Reader(std::span<const std::byte> file) : source_{.rest = file} {
    const bool created = guarded(source_, [&] {
      png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &source_, jump_back, on_warning,
                                      &source_, allocate, release);
      if (png_ != nullptr) info_ = png_create_info_struct(png_);
    });
    if (!created || info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      if (source_.lacks_memory) throw std::bad_alloc();
      fail(ExitStatus::internal,
           "libpng cannot be used (it is not the version of its header, {}); "
           "check the installation",
           PNG_LIBPNG_VER_STRING);
    }
    png_set_read_fn(png_, &source_, read_bytes);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// Calls `work(png, info)`. Error(bad_input) if libpng finds a fault.
  template <typename Work>
  void read(const Work& work) {
    if (guarded(source_, [&] { work(png_, info_); })) return;
    if (source_.lacks_memory) throw std::bad_alloc();
    fail(ExitStatus::bad_input, "not a whole PNG file ({}); replace it",
         static_cast<const char*>(source_.text));
  }

 private:
  Source source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

/// Reads up to the pixels. Gamma, profiles, transparency and texts do not change the pixels, so
/// libpng skips them, whatever their size; a wrong checksum is a fault there too.
void read_header(png_structp png, png_infop info) {
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER,
                              reinterpret_cast<png_const_bytep>("tRNS"), 1);
  png_read_info(png, info);
}

/// Each transformation applies only to files that need it.
void convert_to_rgb(png_structp png, png_infop info) {
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const int colour = png_get_color_type(png, info);
  if (colour == PNG_COLOR_TYPE_PALETTE) {
    png_set_palette_to_rgb(png);
  } else if ((colour & PNG_COLOR_MASK_COLOR) == 0) {
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
  }
}

}  // namespace

void decode_png(std::span<const std::byte> file, Image& image) {
  Reader reader(file);
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t row_bytes = 0;  ///< as stored
  reader.read([&](png_structp png, png_infop info) {
    read_header(png, info);
    height = png_get_image_height(png, info);
    width = png_get_image_width(png, info);
    row_bytes = static_cast<std::int64_t>(png_get_rowbytes(png, info));
  });
  if (height * width > max_image_pixels) {
    fail(ExitStatus::bad_input,
         "a PNG image of {}x{} pixels (at most {} can be decoded); shrink it", height, width,
         max_image_pixels);
  }
  if (static_cast<std::uint64_t>(height * row_bytes) / most_expansion > file.size()) {
    fail(ExitStatus::bad_input,
         "not a whole PNG file ({} bytes cannot hold {}x{} pixels); replace it", file.size(),
         height, width);
  }
  image.shape = {.channels = rgb, .height = height, .width = width};
  image.pixels.resize(static_cast<std::size_t>(height * width * rgb));
  reader.read([&](png_structp png, png_infop info) {
    convert_to_rgb(png, info);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (static_cast<std::int64_t>(png_get_rowbytes(png, info)) != width * rgb) {
      png_error(png, "rows of unexpected size");
    }
    for (int pass = 0; pass < passes; ++pass) {
      auto* row = reinterpret_cast<png_bytep>(image.pixels.data());
      for (std::int64_t y = 0; y < height; ++y, row += width * rgb) png_read_row(png, row, nullptr);
    }
  });
}

}  // namespace lockstep
