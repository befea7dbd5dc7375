#include "image_kind.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  std::string_view format;
  std::size_t offset = 0;
};

// The published signatures of the formats.
constexpr std::array magics{Magic{"\xFF\xD8\xFF", "JPEG"},
                            Magic{"\x89PNG", "PNG"},
                            Magic{"GIF87a", "GIF"},
                            Magic{"GIF89a", "GIF"},
                            Magic{"WEBP", "WebP", 8},
                            Magic{"II*\0"sv, "TIFF"},
                            Magic{"MM\0*"sv, "TIFF"},
                            Magic{"II+\0"sv, "TIFF"},
                            Magic{"MM\0+"sv, "TIFF"},
                            Magic{"ftypavif", "AVIF", 4},
                            Magic{"ftypheic", "HEIF", 4},
                            Magic{"ftypheix", "HEIF", 4},
                            Magic{"ftypmif1", "HEIF", 4},
                            Magic{"\0\0\0\x0CjP  "sv, "JPEG 2000"},
                            Magic{"\xFF\x4F\xFF\x51", "JPEG 2000"},
                            Magic{"\xFF\x0A", "JPEG XL"},
                            Magic{"\0\0\0\x0CJXL "sv, "JPEG XL"},
                            Magic{"8BPS", "Photoshop"},
                            Magic{"\x76\x2F\x31\x01", "OpenEXR"},
                            Magic{"\0\0\1\0"sv, "ICO"},
                            Magic{"qoif", "QOI"},
                            Magic{"DDS ", "DDS"}};

/// "BM", and a header whose size is that of a version of the format.
bool is_bmp(std::string_view bytes) {
  static constexpr std::array sizes{12, 16, 40, 52, 56, 64, 108, 124};
  return bytes.size() >= 18 && bytes.starts_with("BM") && bytes.substr(15, 3) == "\0\0\0"sv &&
         std::find(sizes.begin(), sizes.end(), static_cast<unsigned char>(bytes[14])) !=
             sizes.end();
}

/// PBM, PGM, PPM, PFM: "P" and a digit, then white space or a comment, then a number.
bool is_netpbm(std::string_view bytes) {
  return bytes.size() >= 4 && bytes[0] == 'P' &&
         ((bytes[1] >= '1' && bytes[1] <= '7') || bytes[1] == 'F' || bytes[1] == 'f') &&
         (bytes[2] == '\n' || bytes[2] == ' ' || bytes[2] == '\r') &&
         (bytes[3] == '#' || (bytes[3] >= '0' && bytes[3] <= '9') || bytes[3] == 'W');
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::string extension_of(std::string_view name) {
  const std::size_t dot = name.find_last_of("./");
  if (dot == std::string_view::npos || name[dot] == '/') return {};
  return lower_case(name.substr(dot + 1));
}

bool has_image_extension(std::string_view name) {
  static constexpr std::array<std::string_view, 36> known{
      "jpg", "jpeg", "jpe", "jfif", "jif", "pjpeg", "png", "apng", "webp", "bmp",  "dib", "gif",
      "tif", "tiff", "ppm", "pgm",  "pbm", "pnm",   "pfm", "avif", "heic", "heif", "jxl", "jp2",
      "j2k", "jpx",  "ico", "tga",  "psd", "exr",   "hdr", "dng",  "cr2",  "nef",  "arw", "svg"};
  return std::find(known.begin(), known.end(), extension_of(name)) != known.end();
}

bool is_archive_name(std::string_view name) {
  static constexpr std::array<std::string_view, 11> endings{
      ".zip", ".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".7z", ".rar", ".zip.001", ".z01"};
  const std::string lower = lower_case(name);
  return lower.find(".tar.") != std::string::npos ||
         std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return lower.ends_with(ending); });
}

std::string_view image_format(std::span<const std::byte> first_bytes) {
  const std::string_view bytes(reinterpret_cast<const char*>(first_bytes.data()),
                               first_bytes.size());
  for (const Magic& magic : magics) {
    if (bytes.size() < magic.offset || !bytes.substr(magic.offset).starts_with(magic.bytes)) {
      continue;
    }
    return magic.format;
  }
  if (is_bmp(bytes)) return "BMP";
  if (is_netpbm(bytes)) return "Netpbm";
  return {};
}

std::string describe_unread_image(std::span<const std::byte> first_bytes) {
  const std::string_view format = image_format(first_bytes);
  if (first_bytes.empty()) return "an empty file that is named as an image";
  if (format.empty())
    return "named as an image, but neither a JPEG nor a PNG file by its first bytes";
  const bool vowel = std::string_view("AEIO").find(format.front()) != std::string_view::npos;
  return (vowel ? "an " : "a ") + std::string(format) + " image (JPEG and PNG are read)";
}

JudgedFile judge_image(std::string_view name,
                       FunctionRef<std::span<const std::byte>()> first_bytes) {
  const std::string extension = extension_of(name);
  if (extension == "jpg" || extension == "jpeg" || extension == "png") {
    return {.use = ImageUse::read};
  }
  const std::span<const std::byte> bytes = first_bytes();
  const std::string_view format = image_format(bytes);
  if (format == "JPEG" || format == "PNG") return {.use = ImageUse::read};
  if (!format.empty() || has_image_extension(name)) {
    return {.use = ImageUse::refused, .reason = describe_unread_image(bytes)};
  }
  return {.use = ImageUse::none, .reason = "no image by name and first bytes"};
}

}  // namespace lockstep
