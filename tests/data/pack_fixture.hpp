#pragma once

#include "io/temporary_directory.hpp"

#include <png.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::test {

[[nodiscard]] inline std::string idx_word(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

/// The contents of the IDX files below: pixel i of a sample, and the sample's label.
[[nodiscard]] inline std::uint8_t idx_pixel(std::size_t sample, std::size_t i) {
  return static_cast<std::uint8_t>(sample * 17 + i * 3 + (sample >> 4));
}
[[nodiscard]] inline std::uint8_t idx_label(std::size_t sample) {
  return static_cast<std::uint8_t>(sample * 10 / 300 % 10);  // sorted, to detect a bad order
}

/// Writes the images and labels of one part: `samples` images of 4x5 pixels.
inline void write_idx_part(const std::string& directory, const std::string& prefix,
                           std::size_t samples) {
  std::string images =
      idx_word(0x803) + idx_word(static_cast<std::uint32_t>(samples)) + idx_word(4) + idx_word(5);
  std::string labels = idx_word(0x801) + idx_word(static_cast<std::uint32_t>(samples));
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::size_t i = 0; i < 20; ++i) images.push_back(static_cast<char>(idx_pixel(s, i)));
    labels.push_back(static_cast<char>(idx_label(s)));
  }
  write_file(directory + "/" + prefix + "-images-idx3-ubyte", images);
  write_file(directory + "/" + prefix + "-labels-idx1-ubyte", labels);
}

/// An RGB PNG of one colour.
[[nodiscard]] inline std::string flat_png(std::uint32_t height, std::uint32_t width,
                                          std::uint8_t value) {
  const std::vector<std::uint8_t> pixels(std::size_t{height} * width * 3, value);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, nullptr);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error("libpng cannot write");
  }
  return file;
}

/// Names of all entries of a directory, including hidden files.
[[nodiscard]] inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep::test
