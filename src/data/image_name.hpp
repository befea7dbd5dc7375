#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

[[nodiscard]] inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

/// Whether a file name's extension, without the dot and in lower case, is that of an image.
[[nodiscard]] inline bool is_image_extension(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png";
}

/// Whether a file is an image by its name's extension.
[[nodiscard]] inline bool is_image_name(std::string_view name) {
  const std::size_t dot = name.find_last_of('.');
  return dot != std::string_view::npos && is_image_extension(lower_case(name.substr(dot + 1)));
}

}  // namespace lockstep
