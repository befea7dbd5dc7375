#include "folder_listing.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/pack_source.hpp"
#include "lockstep/data/resample.hpp"
#include "pack_file.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

namespace lockstep {
namespace {

constexpr std::int64_t rgb = 3;

bool starts_with(std::span<const std::byte> bytes, std::span<const std::uint8_t> magic) {
  return bytes.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin(), [](std::uint8_t a, std::byte b) {
           return a == std::to_integer<std::uint8_t>(b);
         });
}

// The first bytes decide the file type, since names lie (ImageNet has a PNG file called .JPEG).
bool is_jpeg(std::span<const std::byte> file) {
  return starts_with(file, std::array<std::uint8_t, 3>{0xFF, 0xD8, 0xFF});
}
bool is_png(std::span<const std::byte> file) {
  return starts_with(file, std::array<std::uint8_t, 4>{0x89, 'P', 'N', 'G'});
}

class FolderSource final : public PackSource {
 public:
  explicit FolderSource(const FolderOptions& options)
      : listing_(list_folder(options.directory)), size_(options.image_size) {
    info_.image = {.channels = rgb,
                   .height = options.keep_encoded ? 0 : size_,
                   .width = options.keep_encoded ? 0 : size_};
    info_.encoded = options.keep_encoded;
    info_.class_names = listing_.classes;
    info_.classes = static_cast<std::int64_t>(listing_.classes.size());
    for (const std::string& name : listing_.classes) {
      info_.identity = crc32c(name + "\n", info_.identity);
    }
    for (const FolderPart* part : {&listing_.train, &listing_.val}) {
      for (const ListedImage& image : part->images) {
        info_.identity =
            crc32c(fmt::format("{} {} {}\n", image.label, image.bytes, image.name), info_.identity);
      }
    }
  }

  [[nodiscard]] const SourceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] std::int64_t samples(SourcePart part) const noexcept override {
    return static_cast<std::int64_t>(of(part).images.size());
  }
  [[nodiscard]] std::uint64_t bytes_of(SourcePart part, std::int64_t index) const override {
    return info_.encoded ? image_of(part, index).bytes
                         : static_cast<std::uint64_t>(size_ * size_ * rgb);
  }

  std::span<const std::byte> read(SourcePart part, std::int64_t index, RawSample& sample) override {
    const ListedImage& image = image_of(part, index);
    const std::string path = (std::filesystem::path(of(part).directory) /
                              listing_.classes[static_cast<std::size_t>(image.label)] / image.name)
                                 .string();
    sample.label = image.label;
    read_whole_file(path, file_);
    try {
      decode();
      if (info_.encoded) {
        keep_encoded(image, sample);
        return decoded_.pixels;
      }
      fit(sample);
    } catch (const Error& error) {
      fail(error.status(), "{}: {}", path, error.what());
    }
    return sample.bytes;
  }

 private:
  [[nodiscard]] const FolderPart& of(SourcePart part) const noexcept {
    return part == SourcePart::train ? listing_.train : listing_.val;
  }
  [[nodiscard]] const ListedImage& image_of(SourcePart part, std::int64_t index) const {
    return of(part).images[static_cast<std::size_t>(index)];
  }

  void decode() {
    if (is_jpeg(file_)) {
      decode_jpeg(file_, rgb, decoded_);
    } else if (is_png(file_)) {
      decode_png(file_, rgb, decoded_);
    } else {
      fail(ExitStatus::bad_input,
           "neither a JPEG nor a PNG file by its first bytes ({} bytes); replace or remove it",
           file_.size());
    }
  }

  void keep_encoded(const ListedImage& image, RawSample& sample) const {
    if (!is_jpeg(file_)) {
      fail(ExitStatus::bad_input,
           "a PNG file (--keep-encoded keeps JPEG files); convert it to JPEG, or leave "
           "--keep-encoded away");
    }
    if (file_.size() != image.bytes) {
      fail(ExitStatus::bad_input,
           "has {} bytes, {} when it was listed (it changed meanwhile); pack again", file_.size(),
           image.bytes);
    }
    sample.bytes = file_;
  }

  /// Resizes the short side to size_, then crops the centre.
  void fit(RawSample& sample) {
    const ImageShape target = short_side_shape(decoded_.shape, size_);
    const Region whole{.height = decoded_.shape.height, .width = decoded_.shape.width};
    const bool fits = target == decoded_.shape;
    if (!fits) resampler_.resize(decoded_.pixels, decoded_.shape, whole, target, resized_);
    const Image& image = fits ? decoded_ : resized_;
    const Region crop = centre_region(target, size_, size_);
    const auto row_bytes = static_cast<std::size_t>(size_ * rgb);
    sample.bytes.resize(row_bytes * static_cast<std::size_t>(size_));
    for (std::int64_t row = 0; row < size_; ++row) {
      const std::int64_t first = ((crop.top + row) * target.width + crop.left) * rgb;
      std::copy_n(image.pixels.begin() + first, row_bytes,
                  sample.bytes.begin() + row * size_ * rgb);
    }
  }

  FolderListing listing_;
  std::int64_t size_;
  SourceInfo info_;
  // Scratch buffers: allocate only when files get larger.
  std::vector<std::byte> file_;
  Image decoded_;
  Image resized_;
  Resampler resampler_;
};

}  // namespace

std::unique_ptr<PackSource> open_folder_source(const FolderOptions& options) {
  return std::make_unique<FolderSource>(options);
}

}  // namespace lockstep
