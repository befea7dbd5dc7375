#pragma once

#include "lockstep/core/function_ref.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

[[nodiscard]] std::string lower_case(std::string_view text);

/// What a name has after its last dot, in lower case; empty if there is no dot.
[[nodiscard]] std::string extension_of(std::string_view name);

/// Whether a name's extension is that of an image of any format.
[[nodiscard]] bool has_image_extension(std::string_view name);

/// Whether a name is that of an archive, compressed or not.
[[nodiscard]] bool is_archive_name(std::string_view name);
inline constexpr const char* archive_reason = "an archive (it is not unpacked)";

/// The image format of a file by its first bytes: "JPEG", "PNG", "WebP", ...; empty if none is
/// recognised. first_image_bytes are enough.
[[nodiscard]] std::string_view image_format(std::span<const std::byte> first_bytes);
inline constexpr std::size_t first_image_bytes = 32;

/// What packing does with a file that may be an image.
enum class ImageUse {
  read,     ///< a JPEG or PNG file
  refused,  ///< an image of another format, or something that is named as an image
  none,     ///< no image
};

struct JudgedFile {
  ImageUse use = ImageUse::none;
  std::string reason = {};  ///< of `refused` and `none`: "a WebP image (JPEG and PNG are read)"
};

/// Judges by content. A name that ends in .jpg, .jpeg or .png is taken at its word, since decoding
/// looks at the content later: opening each file of a large data set to list it takes long.
[[nodiscard]] JudgedFile judge_image(std::string_view name,
                                     FunctionRef<std::span<const std::byte>()> first_bytes);

/// The message for an image that is not read, by its first bytes.
[[nodiscard]] std::string describe_unread_image(std::span<const std::byte> first_bytes);

}  // namespace lockstep
