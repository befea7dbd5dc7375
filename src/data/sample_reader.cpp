#include "sample_reader.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

PixelCut to_cut(const Region& region, bool flip,
                ResampleFilter filter = ResampleFilter::bilinear) noexcept {
  return {.top = static_cast<std::int32_t>(region.top),
          .left = static_cast<std::int32_t>(region.left),
          .height = static_cast<std::int32_t>(region.height),
          .width = static_cast<std::int32_t>(region.width),
          .flip = flip ? 1 : 0,
          .filter = filter};
}

/// The place of a cut of the network's size.
Window window_of(const PixelCut& cut) noexcept {
  return {.top = cut.top, .left = cut.left, .flip = cut.flip != 0};
}

void check_auto_augment(const DatasetInfo& info, const LoaderOptions& options) {
  const std::int64_t channels = options.image.channels;
  if (!options.auto_augment.any() || channels == 1 || channels == 3) return;
  fail(ExitStatus::usage,
       "--auto-augment does not apply to {} (its images have {} channels, the operations take 1 or "
       "3); drop it",
       info.directory, channels);
}

void check_device_decoding(const DatasetInfo& info, const LoaderOptions& options) {
  if (!decodes_on_device(options)) return;
  const auto refuse = [&](const std::string& why) {
    fail(ExitStatus::usage, "--decode gpu does not go with {}; drop it, or use --decode cpu", why);
  };
  if (!info.encoded) {
    refuse(fmt::format("{} (its images are stored as pixels)", info.directory));
  }
  if (options.image.channels != 3) {
    refuse(fmt::format("--channels {} (GPUs decode images of 3 channels)", options.image.channels));
  }
  if (options.auto_augment.any()) {
    refuse("--auto-augment (the loader applies its operations to decoded images)");
  }
}

}  // namespace

std::int64_t short_side_of(const ImageShape& image, double ratio) noexcept {
  return std::llround(static_cast<double>(std::max(image.height, image.width)) / ratio);
}

void check_loader_options(const DatasetInfo& info, const LoaderOptions& options) {
  const ImageShape& wanted = options.image;
  const auto channels = static_cast<std::size_t>(wanted.channels);
  if (options.mean.size() != channels || options.std.size() != channels) {
    fail(ExitStatus::usage,
         "{} values of mean and {} of std for {} channels (one each); set --mean and --std, or "
         "--channels",
         options.mean.size(), options.std.size(), channels);
  }
  for (const float value : options.std) {
    if (!(value > 0)) {
      fail(ExitStatus::usage, "a std of {} (pixels are divided by it); give values above 0", value);
    }
  }
  if (options.batch_capacity < 1 || options.batches_ahead < 0 || options.threads < 0) {
    fail(ExitStatus::usage,
         "a loader of {} samples a batch, {} batches ahead and {} threads (1, 0 and 0 at least); "
         "see "
         "--batch-size and --loader-threads",
         options.batch_capacity, options.batches_ahead, options.threads);
  }
  if (options.shuffle_block < 1 || options.crop_padding < 0) {
    fail(ExitStatus::usage,
         "--shuffle-block {} and --crop-padding {} (1 and 0 at least); raise them",
         options.shuffle_block, options.crop_padding);
  }
  check_auto_augment(info, options);
  check_device_decoding(info, options);
  if (info.encoded) {
    if ((info.image.channels != 0 && info.image.channels != wanted.channels) ||
        (wanted.channels != 1 && wanted.channels != 3)) {
      fail(ExitStatus::usage, "{} holds encoded images, --channels is {} (1 or 3{}); change it",
           info.directory, wanted.channels,
           info.image.channels == 0 ? std::string()
                                    : fmt::format("; mean and std are of {}", info.image.channels));
    }
    return;
  }
  if (info.image.channels != wanted.channels) {
    fail(ExitStatus::usage,
         "{} has images of {} channels (the network takes {}); set --channels {}", info.directory,
         info.image.channels, wanted.channels, info.image.channels);
  }
  if (options.augment == Augment::resized_crop) return;
  const std::int64_t padding = options.augment == Augment::crop_flip ? options.crop_padding : 0;
  if (info.image.height + 2 * padding < wanted.height ||
      info.image.width + 2 * padding < wanted.width) {
    fail(ExitStatus::usage,
         "split {} of {} has images of {}x{}, the network takes {}x{} (they are cropped, never "
         "enlarged); use --image-size, or --eval-size for evaluations, of {} or less",
         info.split, info.directory, info.image.height, info.image.width, wanted.height,
         wanted.width, std::min(info.image.height, info.image.width));
  }
}

ImageShape pixel_shape(const DatasetInfo& info, const LoaderOptions& options) noexcept {
  return info.encoded || options.auto_augment.any() ? options.image : info.image;
}

template <typename Work>
auto SampleReader::of_sample(std::int64_t index, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    fail(error.status(), "{}: {}", dataset_.describe(index), error.what());
  }
}

ResampleFilter SampleReader::draw_filter(PhiloxStream& random) const noexcept {
  const bool is_bicubic = options_.filter == ResizeFilter::random
                              ? random.next_below(2) == 1
                              : options_.filter == ResizeFilter::bicubic;
  return is_bicubic ? ResampleFilter::bicubic : ResampleFilter::bilinear;
}

void SampleReader::decode_and_resize(std::int64_t index, ImageResize how) {
  const Region needed = source_region(how, options_.image);
  const Region decoded = of_sample(index, [&] { return decoder_.decode(needed, decoded_); });
  how.rows.first += static_cast<std::int32_t>(decoded.top - needed.top);
  how.columns.first += static_cast<std::int32_t>(decoded.left - needed.left);
  resampler_.resize(decoded_.pixels, decoded_.shape, how, options_.image, resized_);
}

void SampleReader::resize(std::int64_t index, const ImageResize& how) {
  if (filter_ != nullptr && decoder_.is_plain() && filter_->accepts(raw_.bytes)) {
    left_ = {.file = raw_.bytes.data(),
             .bytes = raw_.bytes.size(),
             .height = static_cast<std::int32_t>(shape_.height),
             .width = static_cast<std::int32_t>(shape_.width),
             .resize = how};
    shape_ = options_.image;
    return;
  }
  if (dataset_.info().encoded) {
    decode_and_resize(index, how);
  } else {
    resampler_.resize(pixels_, shape_, how, options_.image, resized_);
  }
  pixels_ = resized_.pixels;
  shape_ = resized_.shape;
}

PixelCut SampleReader::prepare(std::int64_t epoch, SampleCopy sample, Resampling resampling) {
  const std::int64_t index = sample.sample;
  const bool encoded = dataset_.info().encoded;
  const ImageShape& wanted = options_.image;
  left_ = {};
  dataset_.read(index, raw_);
  pixels_ = raw_.bytes;
  shape_ = encoded ? of_sample(index, [&] { return decoder_.open(raw_.bytes, wanted.channels); })
                   : dataset_.info().image;
  PhiloxStream random = augmentation_stream(options_.seed, epoch, sample);
  if (options_.augment == Augment::resized_crop) {
    const Region region = draw_resized_crop(random, shape_);
    const bool flip = random.next_below(2) == 1;
    const ResampleFilter filter = draw_filter(random);
    if (resampling == Resampling::later) return to_cut(region, flip, filter);
    resize(index, resize_of(region, wanted, filter));
    return to_cut({.height = wanted.height, .width = wanted.width}, flip);
  }
  if (encoded) {  // sizes vary
    const double ratio = options_.augment == Augment::crop_flip ? 1 : default_eval_crop_ratio;
    const std::int64_t short_side =
        options_.short_side != 0 ? options_.short_side : short_side_of(wanted, ratio);
    resize(index, centre_of_resized(shape_, short_side, wanted, draw_filter(random)));
  }
  if (options_.augment == Augment::crop_flip) {
    const Window window = draw_crop_flip(random, shape_, wanted, options_.crop_padding);
    return to_cut(
        {.top = window.top, .left = window.left, .height = wanted.height, .width = wanted.width},
        window.flip);
  }
  return to_cut(centre_region(shape_, wanted.height, wanted.width), false);
}

PixelCut SampleReader::finish(std::int64_t epoch, SampleCopy sample, Resampling resampling) {
  if (!options_.auto_augment.any()) return prepare(epoch, sample, resampling);
  const PixelCut cut = prepare(epoch, sample, Resampling::here);
  augmented_.shape = options_.image;
  copy_window(pixels_, shape_, window_of(cut), augmented_);
  PhiloxStream random = auto_augment_stream(options_.seed, epoch, sample);
  augmenter_.augment(random, options_.auto_augment, augmented_);
  pixels_ = augmented_.pixels;
  shape_ = augmented_.shape;
  return to_cut({.height = shape_.height, .width = shape_.width}, false);
}

std::int32_t SampleReader::read(std::int64_t epoch, SampleCopy sample, float* image) {
  const PixelCut cut = finish(epoch, sample, Resampling::here);
  normalizer_.write(pixels_, shape_, window_of(cut),
                    {.shape = options_.image, .layout = options_.format.layout}, image);
  return static_cast<std::int32_t>(raw_.label);
}

std::int32_t SampleReader::read(std::int64_t epoch, SampleCopy sample, PixelTarget target) {
  *target.cut =
      finish(epoch, sample, dataset_.info().encoded ? Resampling::here : Resampling::later);
  if (target.encoded != nullptr) *target.encoded = left_;
  if (left_.file != nullptr) {
    std::swap(raw_.bytes, *target.file);  // the bytes stay where they are
  } else {
    std::memcpy(target.pixels, pixels_.data(), pixels_.size());
  }
  return static_cast<std::int32_t>(raw_.label);
}

void SampleReader::decode(SampleCopy sample, const EncodedImage& encoded, std::uint8_t* pixels) {
  static_cast<void>(of_sample(sample.sample, [&] {
    return decoder_.open({encoded.file, encoded.bytes}, options_.image.channels);
  }));
  decode_and_resize(sample.sample, encoded.resize);
  std::memcpy(pixels, resized_.pixels.data(), resized_.pixels.size());
}

}  // namespace lockstep
