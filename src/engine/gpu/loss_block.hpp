#pragma once

#include "device.hpp"
#include "lockstep/engine/engine.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::gpu {

/// The loss of one program: its kernels' outputs on the device, and their copies on the host.
class LossBlock final {
 public:
  LossBlock(Device& device, const LossExtent& extent);

  [[nodiscard]] const LossExtent& extent() const noexcept { return extent_; }
  [[nodiscard]] LossOutputs outputs() const noexcept;
  /// Those loaded or taken last.
  [[nodiscard]] BatchLabels labels() const noexcept {
    return {.labels = labels_.data(),
            .mixes = mixed_ ? mixes_.data() : nullptr,
            .dropped = {.masks = drops_ ? dropped_.data() : nullptr}};
  }
  /// Queues the copy of a batch's labels (samples,), from host memory or from the device's.
  void load_labels(DeviceQueues& device, const BatchLabels& labels, std::int64_t samples);
  void take_labels(DeviceQueues& device, const BatchLabels& labels, std::int64_t samples);
  /// Queues a change of what backward multiplies the loss by, in the order of the work and never in
  /// a recording, so recordings serve every scale. Only backward reads it, and the host queues a
  /// backward after the result of the step before, so a forward that is queued ahead may run first.
  void set_scale(DeviceQueues& device, float scale);
  [[nodiscard]] const float* scale() const noexcept { return scale_.data(); }
  /// Queues the copy of losses and hits to the host.
  void fetch(DeviceQueues& device);
  /// Sums over the first `samples`, always in the same order; call after the fetch is done.
  [[nodiscard]] BatchMetrics metrics(std::int64_t samples) const noexcept;
  /// Blocks. Plain (N, classes).
  [[nodiscard]] std::span<const float> logits(DeviceQueues& device);

 private:
  LossExtent extent_;
  DeviceArray<float> scale_;
  std::optional<float> set_scale_;  ///< the last one
  DeviceArray<float> logits_;
  DeviceArray<float> log_sums_;
  DeviceArray<float> losses_;
  DeviceArray<std::int32_t> ranks_;
  DeviceArray<std::int32_t> labels_;
  DeviceArray<ImageMix> mixes_;
  DeviceArray<std::uint64_t> dropped_;
  DeviceArray<std::int32_t> host_labels_;
  DeviceArray<ImageMix> host_mixes_;
  DeviceArray<std::uint64_t> host_dropped_;
  DeviceArray<float> host_losses_;
  DeviceArray<std::int32_t> host_ranks_;
  DeviceArray<float> host_logits_;
  bool mixed_ = false;
  bool drops_ = false;
};

}  // namespace lockstep::gpu
