#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_memory.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/sample_order.hpp"
#include "sample_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// One batch of a loader's ring.
struct LoaderSlot {
  HostBuffer<float> images;         ///< for engines that take values
  HostBuffer<std::uint8_t> pixels;  ///< for engines that take pixels
  HostBuffer<PixelCut> cuts;
  HostBuffer<std::int32_t> labels;
  HostBuffer<PixelBox> erased;        ///< for engines that take pixels; empty: no erasing
  std::vector<EncodedImage> encoded;  ///< empty: the engine decodes no files
  std::vector<std::vector<std::byte>> files;
  HostBuffer<ImageMix> mixes;           ///< empty: no mixing
  HostBuffer<std::uint64_t> dropped;    ///< empty: no stochastic depth
  std::optional<BatchRequest> request;  ///< nullopt: end of the plan
  std::int64_t assigned = 0;            ///< samples assigned to a thread
  std::int64_t finished = 0;
  std::int64_t failed_sample = std::numeric_limits<std::int64_t>::max();
  std::optional<Error> error;  ///< error of failed_sample, the first in batch order

  [[nodiscard]] std::int64_t count() const noexcept { return request ? request->count : 0; }
  void note(std::int64_t sample, Error failure) {
    if (sample >= failed_sample) return;
    failed_sample = sample;
    error.emplace(std::move(failure));
  }
};

/// Reads the samples of batches into slots: in the engine's format, erased and mixed. Threads may
/// read into one slot at once, each other places.
class SlotReader final {
 public:
  /// Both must outlive this object.
  SlotReader(const Dataset& dataset, const LoaderOptions& options);

  [[nodiscard]] const Normalizer& normalizer() const noexcept { return normalizer_; }
  /// Whether the engine decodes files.
  [[nodiscard]] bool encodes() const noexcept { return encodes_; }
  /// Allocates the slots' memory.
  void allocate(std::span<LoaderSlot> slots);
  [[nodiscard]] SampleCopy sample_of(const LoaderSlot& slot, std::int64_t i) const noexcept;
  /// Reads sample i of the slot's batch; returns the error instead of throwing.
  [[nodiscard]] std::optional<Error> read(SampleReader& reader, LoaderSlot& slot,
                                          std::int64_t i) const noexcept;
  /// Decodes a file of the slot, which the engine could not decode, to its pixels.
  void decode(SampleReader& reader, LoaderSlot& slot, std::int64_t i) const;
  /// The slot's batch; `host` decodes what the engine cannot.
  [[nodiscard]] Batch batch_of(LoaderSlot& slot, HostDecoding& host) const;

 private:
  /// Whether a batch of values may begin or end between the samples of a pair.
  [[nodiscard]] bool mixes_partners() const noexcept {
    return options_.mix.any() && !takes_pixels_;
  }
  /// Reads a sample to place i of the slot, as it is before mixing.
  void read_image(SampleReader& reader, LoaderSlot& slot, SampleCopy sample, std::int64_t i) const;
  void erase(LoaderSlot& slot, std::int64_t i, SampleCopy sample) const noexcept;
  /// Mixes sample i with its partner, if that is read: the samples at offsets 2k and 2k + 1 of the
  /// step are a pair. A partner that belongs to another micro-batch is read here too, so ranks do
  /// not change what is mixed. The step's last sample may have no partner and stays as it is.
  void mix(SampleReader& reader, LoaderSlot& slot, std::int64_t i) const;

  const LoaderOptions& options_;
  Normalizer normalizer_;
  SampleOrder order_;
  bool takes_pixels_;
  bool encodes_;
  ImageShape stored_;        ///< shape of images in a batch of pixels
  std::int64_t image_size_;  ///< values or pixel bytes per image
  HostBuffer<float> pixel_values_;
};

}  // namespace lockstep
