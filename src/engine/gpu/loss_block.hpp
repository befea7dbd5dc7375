#pragma once

#include "device_allocator.hpp"
#include "device_queues.hpp"
#include "lockstep/engine/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::gpu {

/// A value per sample of a batch, at one address for all batches.
template <typename T>
class SampleValues final {
 public:
  SampleValues(DeviceAllocator& memory, std::size_t samples)
      : values_(memory, samples), host_(memory, samples, MemoryPlace::host) {}
  /// Null if the batch has none.
  [[nodiscard]] T* data() const noexcept { return given_ ? values_.data() : nullptr; }
  /// Queues the copy of a batch's values, which are in memory of the host or of the device.
  void load(DeviceQueues& queues, const T* from, std::size_t samples, MemoryPlace place) {
    given_ = from != nullptr;
    if (!given_) return;
    if (place == MemoryPlace::device)
      return queues.copy_on_device(values_.data(), from, samples * sizeof(T));
    std::copy_n(from, samples, host_.data());
    queues.copy_to_device(values_.data(), host_.data(), samples * sizeof(T));
  }

 private:
  DeviceArray<T> values_;
  DeviceArray<T> host_;
  bool given_ = false;
};

/// The loss of one program: its kernels' outputs on the device, and their copies on the host.
class LossBlock final {
 public:
  LossBlock(DeviceAllocator& memory, const LossExtent& extent);

  [[nodiscard]] const LossExtent& extent() const noexcept { return extent_; }
  [[nodiscard]] LossOutputs outputs() const noexcept;
  /// Those loaded last.
  [[nodiscard]] BatchLabels labels() const noexcept {
    return {
        .labels = labels_.data(), .mixes = mixes_.data(), .dropped = {.masks = dropped_.data()}};
  }
  /// Queues the copy of a batch's labels (samples,), as SampleValues.
  void load_labels(DeviceQueues& device, const BatchLabels& labels, std::int64_t samples,
                   MemoryPlace place);
  /// Queues a change of the factor that backward multiplies the loss by. It is never recorded, so
  /// one recording serves every scale. A scale follows from the result of the step before, when the
  /// next forward may be queued already; only backward reads it, so the change comes between them.
  void set_scale(DeviceQueues& device, float scale);
  [[nodiscard]] const float* scale() const noexcept { return scale_.data(); }
  /// Queues the copy of losses and predictions to the host.
  void fetch(DeviceQueues& device);
  /// Sums over the first `samples`, always in the same order; call after the fetch is done.
  [[nodiscard]] BatchMetrics metrics(std::int64_t samples) const noexcept;
  /// Blocks. Plain (N, classes).
  [[nodiscard]] std::span<const float> logits(DeviceQueues& device);

 private:
  LossExtent extent_;
  DeviceArray<float> scale_;
  std::optional<float> last_scale_;
  DeviceArray<float> logits_;
  DeviceArray<float> kept_;
  DeviceArray<float> losses_;
  DeviceArray<Prediction> predictions_;
  SampleValues<std::int32_t> labels_;
  SampleValues<ImageMix> mixes_;
  SampleValues<std::uint64_t> dropped_;
  DeviceArray<float> host_losses_;
  DeviceArray<Prediction> host_predictions_;
  DeviceArray<float> host_logits_;
};

}  // namespace lockstep::gpu
