#pragma once

#include "device.hpp"
#include "jpeg_library.hpp"
#include "lockstep/core/batch.hpp"
#include "lockstep/core/encoded_images.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::gpu {

/// Where a decoded image goes: (height, width, 3) of the batch's pixels, on the device.
struct DecodeTarget {
  std::int64_t image;  ///< index in the batch
  std::uint8_t* pixels;
};

struct BatchDecoderOptions {
  /// nullopt: the GPU's JPEG engines if it has any, else its multiprocessors.
  std::optional<JpegBackend> backend = std::nullopt;
  /// Device memory for decoded images of a piece of a batch; a larger image is a piece of its own.
  std::size_t piece_bytes = std::size_t{1} << 28;
};

/// Decodes JPEG files on a device and resizes their regions to pixels of a batch, in the queue of
/// transfers.
class BatchDecoder final : public DeviceDecoding {
 public:
  /// The device must outlive the decoder. Error(usage) if it cannot decode.
  explicit BatchDecoder(Device& device, const BatchDecoderOptions& options = {});
  ~BatchDecoder() override;
  BatchDecoder(const BatchDecoder&) = delete;
  BatchDecoder& operator=(const BatchDecoder&) = delete;

  [[nodiscard]] std::string description() const override { return description_; }
  [[nodiscard]] std::unique_ptr<FileFilter> make_filter() override;
  void finish() noexcept override;
  [[nodiscard]] Counts counts() const noexcept override { return counts_; }
  void count(const Counts& batch) noexcept {
    counts_.device += batch.device;
    counts_.host += batch.host;
  }

  /// Queues the decoding of `targets`, images of `images` with files. The files are read before the
  /// work that is queued ends. Returns the targets that the library refused; nothing is written to
  /// these.
  [[nodiscard]] std::vector<DecodeTarget> decode(const PixelImages& images,
                                                 std::span<const DecodeTarget> targets);

 private:
  struct Handle;
  class Filter;
  /// Memory of a piece that the host fills while the device may work on the piece before.
  struct Piece;

  void queue(const PixelImages& images, std::span<const DecodeTarget> targets,
             std::vector<DecodeTarget>& refused);
  void grow(std::size_t decoded, std::size_t workspace);
  [[nodiscard]] JpegStatus decode_files(Piece& piece, const PixelImages& images,
                                        std::span<const DecodeTarget> targets);

  Device& device_;
  JpegLibrary& library_;
  BatchDecoderOptions options_;
  std::string description_;
  std::unique_ptr<const Handle> handle_;
  std::array<std::unique_ptr<Piece>, 2> pieces_;
  std::size_t next_piece_ = 0;
  Counts counts_;
  DeviceArray<std::uint8_t> decoded_;
  DeviceArray<std::byte> workspace_;
};

}  // namespace lockstep::gpu
