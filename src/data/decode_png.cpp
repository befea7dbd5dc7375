#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"

#include <png.h>

#include <string>

namespace lockstep {

void decode_png(std::span<const std::byte> file, std::int64_t channels, Image& image) {
  if (channels != 1 && channels != 3) {
    fail(ExitStatus::usage,
         "PNG images cannot have {} channels (1 or 3 can be read); use --channels 3", channels);
  }
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  const auto give_up = [&png] {
    const std::string reason = png.message;
    png_image_free(&png);
    fail(ExitStatus::bad_input, "not a whole PNG file ({}); replace it", reason);
  };
  if (png_image_begin_read_from_memory(&png, file.data(), file.size()) == 0) give_up();
  const std::int64_t height = png.height;
  const std::int64_t width = png.width;
  if (height * width > max_image_pixels) {
    png_image_free(&png);
    fail(ExitStatus::bad_input,
         "a PNG image of {}x{} pixels (at most {} can be decoded); shrink it", height, width,
         max_image_pixels);
  }
  png.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  image.shape = {.channels = channels, .height = height, .width = width};
  image.pixels.resize(static_cast<std::size_t>(height * width * channels));
  const png_color black{};
  if (png_image_finish_read(&png, &black, image.pixels.data(), 0, nullptr) == 0) give_up();
}

}  // namespace lockstep
