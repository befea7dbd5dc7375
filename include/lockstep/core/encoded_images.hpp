#pragma once

#include "lockstep/core/image_resize.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// One image of a batch that the engine decodes.
struct EncodedImage {
  const std::byte* file = nullptr;  ///< null: the image is in PixelImages::data already
  std::size_t bytes = 0;
  std::int32_t height = 0;  ///< of the encoded image
  std::int32_t width = 0;
  ImageResize resize;  ///< to the extent of PixelImages
};

/// Decodes images of a batch on the host, after all.
class HostDecoding {
 public:
  virtual ~HostDecoding() = default;
  /// Writes image i to PixelImages::data, to the same pixels as without a decoding engine.
  /// Error(bad_input), with the image's name, if its file is damaged.
  virtual void decode(std::int64_t i) = 0;
};

/// The files of a batch.
struct EncodedImages {
  const EncodedImage* images = nullptr;  ///< (N,); null: all images are in PixelImages::data
  HostDecoding* host = nullptr;
};

/// Which files an engine decodes. Each thread needs its own.
class FileFilter {
 public:
  virtual ~FileFilter() = default;
  [[nodiscard]] virtual bool accepts(std::span<const std::byte> file) = 0;
};

/// An engine's decoder of JPEG files.
class DeviceDecoding {
 public:
  virtual ~DeviceDecoding() = default;
  /// "nvJPEG 13.0.1, 1 JPEG engine of 8 cores"
  [[nodiscard]] virtual std::string description() const = 0;
  /// The result must not outlive the engine.
  [[nodiscard]] virtual std::unique_ptr<FileFilter> make_filter() = 0;
  /// Waits until no queued work reads a file.
  virtual void finish() noexcept = 0;
  /// Images of all batches so far, by what decoded them.
  struct Counts {
    std::int64_t device = 0;
    std::int64_t host = 0;
  };
  [[nodiscard]] virtual Counts counts() const noexcept = 0;
};

}  // namespace lockstep
