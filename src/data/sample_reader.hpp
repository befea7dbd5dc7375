#pragma once

#include "lockstep/data/augment.hpp"
#include "lockstep/data/auto_augment.hpp"
#include "lockstep/data/loader.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Whether the engine decodes files.
[[nodiscard]] inline bool decodes_on_device(const LoaderOptions& options) noexcept {
  return options.format.decoding != nullptr;
}

/// Turns a sample index into the network's image: read, decode, augment, normalise. Owns scratch
/// memory, so each thread needs its own reader.
class SampleReader final {
 public:
  /// All arguments must outlive the reader.
  SampleReader(const Dataset& dataset, const LoaderOptions& options, const Normalizer& normalizer)
      : dataset_(dataset),
        options_(options),
        normalizer_(normalizer),
        filter_(decodes_on_device(options) ? options.format.decoding->make_filter() : nullptr) {}

  /// Writes the image to `image` in the engine's layout and returns the label. A pure function of
  /// (options, epoch, sample). Error(bad_input or no_input) names file and sample.
  [[nodiscard]] std::int32_t read(std::int64_t epoch, SampleCopy sample, float* image);

  /// Like read(), for engines that augment and normalise themselves: writes pixels of pixel_shape()
  /// and the cut that becomes the network's image.
  struct PixelTarget {
    std::uint8_t* pixels;
    PixelCut* cut;
    /// Receives the image's file, in memory of `file`, if the engine decodes it; then `pixels` are
    /// not written. Null: the engine decodes no files.
    EncodedImage* encoded = nullptr;
    std::vector<std::byte>* file = nullptr;
  };
  [[nodiscard]] std::int32_t read(std::int64_t epoch, SampleCopy sample, PixelTarget target);

  /// Decodes and resizes a file that read() left to the engine, to the pixels that it would have
  /// written. Error(bad_input) names the sample.
  void decode(SampleCopy sample, const EncodedImage& encoded, std::uint8_t* pixels);

 private:
  enum class Resampling { here, later };
  /// Reads a sample and draws its cut. `later`: a resized crop of raw pixels is left to the engine.
  [[nodiscard]] PixelCut prepare(std::int64_t epoch, SampleCopy sample, Resampling resampling);
  /// As prepare(), then cuts and automatic augmentation if the options have any.
  [[nodiscard]] PixelCut finish(std::int64_t epoch, SampleCopy sample, Resampling resampling);
  /// Calls work(), and names the sample in its error.
  template <typename Work>
  auto of_sample(std::int64_t index, const Work& work);
  /// Decodes the sample as far as needed, if it is encoded, and resizes it to the network's image;
  /// or leaves both to the engine.
  void resize(std::int64_t index, const ImageResize& how);
  /// Decodes the opened file as far as needed and resizes it to `resized_`.
  void decode_and_resize(std::int64_t index, ImageResize how);
  /// Draws only if the option is `random`.
  [[nodiscard]] ResampleFilter draw_filter(PhiloxStream& random) const noexcept;

  const Dataset& dataset_;
  const LoaderOptions& options_;
  const Normalizer& normalizer_;
  RawSample raw_;
  JpegDecoder decoder_;
  std::unique_ptr<FileFilter> filter_;  ///< null: the engine decodes no files
  EncodedImage left_;                   ///< what is left to the engine; no file: nothing
  Image decoded_;
  Image resized_;
  Resampler resampler_;
  Image augmented_;
  AutoAugmenter augmenter_;
  std::span<const std::byte> pixels_;  ///< of raw_, decoded_, resized_ or augmented_
  ImageShape shape_;                   ///< of pixels_, or of the image that raw_ encodes
};

/// Shape of the images in a batch of pixels: the stored shape, or the network's if sizes vary or
/// images are augmented automatically.
[[nodiscard]] ImageShape pixel_shape(const DatasetInfo& info,
                                     const LoaderOptions& options) noexcept;

}  // namespace lockstep
