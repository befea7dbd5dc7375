#include "image_sizes.hpp"

#include "lockstep/config/option_table.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace lockstep {
namespace {

/// Pixel evaluations that show less of the short side are not what random areas of whole images
/// train for.
constexpr double least_shown = 0.75;

std::string size_text(const ImageShape& image) {
  return fmt::format("{}x{}", image.height, image.width);
}

std::string option_text(const Config& config, const char* name) {
  return train_options().get(config, name);
}

std::int64_t short_side(const ImageShape& image) {
  return std::min(image.height, image.width);
}

/// "JPEG files with a short side of 256 at most", "pixels of 224x224".
std::string stored_text(const DatasetInfo& data) {
  if (!data.encoded) return "pixels of " + size_text(data.image);
  if (data.short_side == 0) return "JPEG files";
  return fmt::format("JPEG files with a short side of at most {}", data.short_side);
}

/// "resizes the short side to 256 (bilinear), crops 224x224".
std::string resized_text(std::int64_t resized, const std::string& filter, const ImageShape& image) {
  return fmt::format("resizes the short side to {} ({}), crops {}", resized, filter,
                     size_text(image));
}

/// Of pixels that are not resized.
std::string cropped_text(const ImageShape& stored, const ImageShape& image) {
  const bool whole = stored.height == image.height && stored.width == image.width;
  return whole ? "takes them whole" : "crops the centre " + size_text(image);
}

std::string training_text(const RunPlan& plan, const DatasetInfo& data) {
  const Config& config = plan.config;
  ImageShape image = plan.model.image;
  std::vector<std::string> sizes{size_text(image)};
  for (const ImageSizeChange& change : config.image_size_schedule) {
    sizes.push_back(fmt::format("{0}x{0}", change.size));
  }
  const std::string size = fmt::format("{}", fmt::join(sizes, ", later "));
  if (config.augment == Augment::resized_crop) {
    return fmt::format("training resizes random areas to {} ({})", size,
                       option_text(config, "train-interpolation"));
  }
  if (config.augment == Augment::crop_flip) {
    return fmt::format("training {}pads by {} and crops {} at random",
                       data.encoded ? "resizes the short side to the crop's, " : "",
                       config.crop_padding, size);
  }
  return "training " + (data.encoded ? resized_text(short_side_of(image, default_eval_crop_ratio),
                                                    "bilinear", image)
                                     : cropped_text(data.image, image));
}

std::string evaluation_text(const RunPlan& plan, const DatasetInfo& data) {
  const ImageShape& image = plan.evaluation_image;
  return "evaluation " + (data.encoded
                              ? resized_text(evaluation_short_side(plan),
                                             option_text(plan.config, "eval-interpolation"), image)
                              : cropped_text(data.image, image));
}

/// Random areas of images that packing has shrunk to about the size of the network's input.
std::string training_warning(const RunPlan& plan, const DatasetInfo& data) {
  const Config& config = plan.config;
  if (config.augment != Augment::resized_crop || config.synthetic) return {};
  ImageShape image = plan.model.image;
  for (const ImageSizeChange& change : config.image_size_schedule) {
    if (change.size > short_side(image)) image.height = image.width = change.size;
  }
  const std::int64_t stored = data.encoded ? data.short_side : short_side(data.image);
  const std::int64_t wanted = short_side_of(image, default_eval_crop_ratio);
  if (stored == 0 || stored >= wanted) return {};
  const double area = data.encoded ? static_cast<double>(stored * stored)
                                   : static_cast<double>(data.image.height * data.image.width);
  const double factor = std::sqrt(static_cast<double>(image.height * image.width) / (0.5 * area));
  return fmt::format(
      "--augment resized-crop makes training images of {} from {} (areas of already small images "
      "are enlarged, half an image {:.2f} times, evaluation images are not); {}",
      size_text(image), stored_text(data), factor,
      data.encoded ? fmt::format("pack with --short-side {} or more, or without", wanted)
                   : fmt::format("pack the original images with --keep-encoded, or use --augment "
                                 "crop-flip if they are not larger"));
}

std::string evaluation_warning(const RunPlan& plan, const DatasetInfo& data) {
  const ImageShape& image = plan.evaluation_image;
  if (data.encoded) {
    const std::int64_t resized = evaluation_short_side(plan);
    if (data.short_side == 0 || data.short_side >= resized) return {};
    return fmt::format(
        "evaluation resizes the short side to {} for images of {}, but split {} of {} was packed "
        "with --short-side {} (its images are enlarged); pack with --short-side {} or more, or use "
        "a smaller --eval-size or --eval-resize",
        resized, size_text(image), data.split, data.directory, data.short_side, resized);
  }
  const double shown = static_cast<double>(std::max(image.height, image.width)) /
                       static_cast<double>(short_side(data.image));
  if (plan.config.augment != Augment::resized_crop || shown >= least_shown) return {};
  return fmt::format(
      "evaluation crops the centre {} of pixels of {} (it sees {:.0f} % of the short side, while "
      "training resizes areas of whole images); pack the original images with --keep-encoded, or "
      "split {} with --image-size {}",
      size_text(image), size_text(data.image), 100 * shown, data.split,
      short_side_of(image, default_eval_crop_ratio));
}

}  // namespace

ImageDescription describe_images(const RunPlan& plan, const DatasetInfo* training,
                                 const DatasetInfo* validation) {
  ImageDescription result;
  std::vector<std::string> parts;
  std::string stored;  // as said last
  const auto add = [&](const DatasetInfo& data, std::string text, std::string warning) {
    if (std::string now = stored_text(data); now != stored) {
      stored = now;
      parts.push_back(std::move(now));
    }
    parts.push_back(std::move(text));
    if (!warning.empty()) result.warnings.push_back(std::move(warning));
  };
  if (training != nullptr) {
    add(*training, training_text(plan, *training), training_warning(plan, *training));
  }
  if (validation != nullptr) {
    add(*validation, evaluation_text(plan, *validation), evaluation_warning(plan, *validation));
  }
  result.line = fmt::format("{}", fmt::join(parts, "; "));
  return result;
}

std::string resizing_options(const Config& config) {
  std::vector<std::string> options;
  for (const char* name : {"eval-crop-ratio", "eval-resize", "eval-interpolation"}) {
    const std::string value = option_text(config, name);
    if (value != option_text({}, name)) options.push_back(fmt::format("--{} {}", name, value));
  }
  return fmt::format("{}", fmt::join(options, " and "));
}

void refuse_resizing(const Config& given, const DatasetInfo& validation) {
  const std::string options = resizing_options(given);
  if (validation.encoded || options.empty()) return;
  fail(ExitStatus::usage,
       "{} does not apply to {} (its images are stored as pixels of {}, which evaluations crop and "
       "do not resize); drop it, or pack with --keep-encoded",
       options, validation.directory, size_text(validation.image));
}

}  // namespace lockstep
