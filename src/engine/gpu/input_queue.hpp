#pragma once

#include "batch_decoder.hpp"
#include "device.hpp"
#include "device_targets.hpp"
#include "lockstep/core/batch.hpp"
#include "sample_values.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::gpu {

/// A batch of pixels on the device.
struct DeviceBatch {
  StoredImages images;
  Targets targets;
  DroppedBlocks dropped;
};

/// Copies batches of pixels to the device concurrently with its work: the next batch is copied
/// while one is computed.
class InputQueue final {
 public:
  /// `channels`: of the images. The device must outlive the queue.
  /// `decoder`: of batches with encoded images; null: there are none.
  InputQueue(Device& device, std::int64_t channels,
             std::unique_ptr<BatchDecoder> decoder = nullptr);

  /// Null if batches may not have encoded images.
  [[nodiscard]] DeviceDecoding* decoding() const noexcept { return decoder_.get(); }

  /// Queues the copy of a batch, after the work that reads its slot's previous batch.
  /// Error(internal) if two batches are already in flight.
  void begin(const Batch& batch);
  /// Work queued from now on waits for the batch, and may cut it to images of `extent`. Starts the
  /// copy if begin() was not called.
  [[nodiscard]] DeviceBatch take(const Batch& batch, const ImageExtent& extent);
  /// Call after queueing the last work that reads the batch taken last.
  void release();
  /// Blocks until the batch taken last, if any, is on the device.
  void await_taken();
  /// Blocks until the batch, if begun, is on the device, and frees its slot.
  void discard(const Batch& batch);

 private:
  struct Slot {
    DeviceArray<std::uint8_t> pixels;
    DeviceArray<PixelCut> cuts;
    DeviceArray<float> values;
    SampleValues<PixelBox> erased;
    DeviceTargets targets;
    SampleValues<std::uint64_t> dropped;
    std::unique_ptr<Event> arrived;
    std::unique_ptr<Event> read;
    const std::uint8_t* from = nullptr;  ///< the host's pixels being copied; null: none
  };

  [[nodiscard]] Slot* find(const std::uint8_t* from) noexcept;
  void grow(Slot& slot, std::size_t pixels, std::size_t images);
  /// Queues the pixels of a batch with encoded images.
  void decode(const Batch& batch, std::uint8_t* pixels, std::size_t image_bytes);

  Device& device_;
  std::size_t channels_;
  std::unique_ptr<BatchDecoder> decoder_;
  std::vector<DecodeTarget> decode_targets_;  ///< of the batch that decode() queues
  std::array<Slot, 2> slots_;
  DeviceArray<std::byte> workspace_;  ///< of the work on the batch taken last
  Slot* taken_ = nullptr;
};

}  // namespace lockstep::gpu
