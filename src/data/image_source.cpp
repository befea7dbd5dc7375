#include "archive_file.hpp"
#include "image_kind.hpp"
#include "image_list.hpp"
#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/decode.hpp"
#include "lockstep/data/encode.hpp"
#include "lockstep/data/pack_source.hpp"
#include "lockstep/data/resample.hpp"
#include "pack_file.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

constexpr std::int64_t rgb = 3;
/// The largest image that is decoded has half of this as PNG of 16 bits and four channels.
constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 30;

std::string settings_of(const ImageOptions& options) {
  if (!options.keep_encoded) {
    const std::string width = options.image_width ? fmt::format("x{}", *options.image_width) : "";
    return fmt::format("pixels, image size {}{}", options.image_size, width);
  }
  if (!options.short_side) return fmt::format("JPEG files, quality {}", options.quality);
  return fmt::format("JPEG files, short side {}, quality {}", *options.short_side, options.quality);
}

class ImageSource final : public PackSource {
 public:
  ImageSource(ImageListing listing, const ImageOptions& options)
      : listing_(std::move(listing)),
        height_(options.image_size),
        width_(options.image_width.value_or(options.image_size)),
        short_side_(options.short_side),
        quality_(options.quality) {
    info_.image = {.channels = rgb,
                   .height = options.keep_encoded ? 0 : height_,
                   .width = options.keep_encoded ? 0 : width_};
    info_.encoded = options.keep_encoded;
    info_.short_side = options.keep_encoded ? options.short_side.value_or(0) : 0;
    info_.settings = settings_of(options);
    info_.classes = listing_.classes;
    info_.class_names = listing_.class_names;
    info_.fates = std::move(listing_.fates);
    info_.notes = std::move(listing_.notes);
    for (const std::string& name : listing_.class_names) {
      info_.identity = crc32c(name + "\n", info_.identity);
    }
    for (const ImageList* part : {&listing_.train, &listing_.val}) {
      for (std::int64_t i = 0; i < part->size(); ++i) {
        const ListedImage& image = (*part)[i];
        info_.identity = crc32c(fmt::format("{} {} {}\n", image.label, image.bytes, part->name(i)),
                                info_.identity);
      }
    }
  }

  [[nodiscard]] const SourceInfo& info() const noexcept override { return info_; }
  [[nodiscard]] std::int64_t samples(SourcePart part) const noexcept override {
    return of(part).size();
  }
  [[nodiscard]] std::uint64_t bytes_of(SourcePart part, std::int64_t index) const override {
    return info_.encoded ? of(part)[index].bytes
                         : static_cast<std::uint64_t>(height_ * width_ * rgb);
  }

  [[nodiscard]] std::int64_t label(SourcePart part, std::int64_t index) const override {
    return of(part)[index].label;
  }
  [[nodiscard]] std::string describe(SourcePart part, std::int64_t index) const override {
    const ImageList& list = of(part);
    const auto container = static_cast<std::size_t>(list[index].container);
    return fmt::format("{}/{}", listing_.containers[container], list.name(index));
  }

  [[nodiscard]] ReadResult read(SourcePart part, std::int64_t index, RawSample& sample) override {
    const ListedImage& image = of(part)[index];
    read_file(part, index);
    sample.label = image.label;
    // The first bytes decide the format, since names lie (ImageNet has a PNG file called .JPEG).
    const bool jpeg = image_format(file_) == "JPEG";
    decode(jpeg);
    if (!info_.encoded) {
      fit(sample);
      return {.pixels = sample.bytes};
    }
    if (short_side_ && std::min(decoded_.shape.height, decoded_.shape.width) > *short_side_) {
      resize(covering_shape(decoded_.shape, *short_side_, *short_side_));
      encode_jpeg(resized_, quality_, sample.bytes);
      return {.pixels = resized_.pixels, .conversion = Conversion::resized};
    }
    // What decodes to RGB or grey is kept; a PNG or CMYK file is not what readers of JPEG expect.
    if (jpeg && jpeg_components(file_) < 4) {
      sample.bytes = file_;
      return {.pixels = decoded_.pixels};
    }
    encode_jpeg(decoded_, quality_, sample.bytes);
    return {.pixels = decoded_.pixels, .conversion = Conversion::re_encoded};
  }

 private:
  [[nodiscard]] const ImageList& of(SourcePart part) const noexcept {
    return part == SourcePart::train ? listing_.train : listing_.val;
  }

  void read_file(SourcePart part, std::int64_t index) {
    const ListedImage& image = of(part)[index];
    if (image.bytes > max_file_bytes) {
      fail(ExitStatus::bad_input,
           "a file of {} bytes (an image that can be decoded has at most {}); replace it",
           image.bytes, max_file_bytes);
    }
    if (listing_.archives) {
      file_.resize(image.bytes);
      archives_.read(listing_.containers[static_cast<std::size_t>(image.container)], image.offset,
                     file_);
      return;
    }
    const std::string path = describe(part, index);
    read_whole_file(path, file_);
    if (file_.size() != image.bytes) {
      fail(ExitStatus::no_input,
           "{} has {} bytes, {} when it was listed (it changed meanwhile); pack again", path,
           file_.size(), image.bytes);
    }
  }

  void decode(bool jpeg) {
    if (jpeg) {
      decode_jpeg(file_, rgb, decoded_);
    } else if (image_format(file_) == "PNG") {
      decode_png(file_, decoded_);
    } else {
      fail(ExitStatus::bad_input, "{} ({} bytes); convert or replace it",
           describe_unread_image(file_), file_.size());
    }
  }

  /// Resizes all of decoded_ into resized_.
  void resize(const ImageShape& target) {
    const Region whole{.height = decoded_.shape.height, .width = decoded_.shape.width};
    resampler_.resize(decoded_.pixels, decoded_.shape,
                      resize_of(whole, target, ResampleFilter::bilinear), target, resized_);
  }

  /// Resizes decoded_ to cover height_ x width_, then crops the centre.
  void fit(RawSample& sample) {
    const ImageShape target = covering_shape(decoded_.shape, height_, width_);
    if (target.height * target.width > max_image_pixels) {
      fail(ExitStatus::bad_input,
           "an image of {}x{} pixels (it would have {}x{} to cover {}x{}); crop it",
           decoded_.shape.height, decoded_.shape.width, target.height, target.width, height_,
           width_);
    }
    const bool fits = target == decoded_.shape;
    if (!fits) resize(target);
    const Image& image = fits ? decoded_ : resized_;
    const Region crop = centre_region(target, height_, width_);
    const auto row_bytes = static_cast<std::size_t>(width_ * rgb);
    sample.bytes.resize(row_bytes * static_cast<std::size_t>(height_));
    for (std::int64_t row = 0; row < height_; ++row) {
      const std::int64_t first = ((crop.top + row) * target.width + crop.left) * rgb;
      std::copy_n(image.pixels.begin() + first, row_bytes,
                  sample.bytes.begin() + row * width_ * rgb);
    }
  }

  ImageListing listing_;
  std::int64_t height_;
  std::int64_t width_;
  std::optional<std::int64_t> short_side_;
  std::int64_t quality_;
  SourceInfo info_;
  ArchiveFiles archives_;
  // Scratch buffers: allocate only when files get larger.
  std::vector<std::byte> file_;
  Image decoded_;
  Image resized_;
  Resampler resampler_;
};

std::optional<LabelPaths> label_paths(const ImageOptions& options) {
  if (options.val_labels.empty()) return std::nullopt;
  return LabelPaths{.labels = options.val_labels, .class_ids = options.class_ids};
}

/// Replaces the classes by their readable names, if there is a file with them. Collective.
void name_classes(const ImageOptions& options, ImageListing& listing, Communicator& comm) {
  if (options.class_names.empty()) return;
  std::vector<std::string> names;
  collectively(comm, [&] {
    if (comm.rank() == 0) names = names_of(listing.class_names, read_text(options.class_names));
  });
  listing.class_names = broadcast_texts(comm, names);
}

}  // namespace

std::unique_ptr<PackSource> open_folder_source(const ImageOptions& options, Communicator& comm) {
  ImageListing listing = list_folder(options.directory, label_paths(options), options.on_bad, comm);
  name_classes(options, listing, comm);
  return std::make_unique<ImageSource>(std::move(listing), options);
}

std::unique_ptr<PackSource> open_tar_source(const ImageOptions& options, Communicator& comm) {
  ImageListing listing =
      list_imagenet_archives(options.directory, label_paths(options), options.on_bad, comm);
  name_classes(options, listing, comm);
  return std::make_unique<ImageSource>(std::move(listing), options);
}

std::unique_ptr<PackSource> open_webdataset_source(const ImageOptions& options,
                                                   Communicator& comm) {
  return std::make_unique<ImageSource>(
      list_webdataset(options.directory, options.class_names, options.on_bad, comm), options);
}

}  // namespace lockstep
