#pragma once

#include "device.hpp"
#include "lockstep/engine/engine.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::cuda {

/// A batch of pixels on the device.
struct DeviceBatch {
  StoredImages images;
  const std::int32_t* labels;
};

/// Brings batches of pixels to the device beside its work: while one is worked on, the next is on
/// its way.
class InputQueue final {
 public:
  /// Of images with `channels` channels. The device outlives it.
  InputQueue(Device& device, std::int64_t channels);

  /// Queues the way of a batch, behind the work that reads what its place held. Error(internal)
  /// where two are on their way already.
  void begin(const Batch& batch);
  /// What is queued as work from now on waits for the batch, whose way begins now if it has not.
  [[nodiscard]] DeviceBatch take(const Batch& batch);
  /// The work queued so far has read the batch taken last.
  void release();

 private:
  struct Slot {
    DeviceArray<std::uint8_t> pixels;
    DeviceArray<PixelCut> cuts;
    DeviceArray<float> values;
    DeviceArray<std::int32_t> labels;
    std::unique_ptr<Event> arrived;
    std::unique_ptr<Event> read;
    const std::uint8_t* from = nullptr;  ///< the host's pixels on their way; null: none are
  };

  [[nodiscard]] Slot* find(const std::uint8_t* from) noexcept;
  void grow(Slot& slot, std::size_t pixels, std::size_t images);

  Device& device_;
  std::size_t channels_;
  std::array<Slot, 2> slots_;
  Slot* taken_ = nullptr;
};

}  // namespace lockstep::cuda
