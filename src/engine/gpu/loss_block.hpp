#pragma once

#include "device_allocator.hpp"
#include "device_queues.hpp"
#include "lockstep/engine/program.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace lockstep::gpu {

/// The loss of one program: its kernels' outputs on the device, and their copies on the host.
class LossBlock final {
 public:
  LossBlock(DeviceAllocator& memory, const LossExtent& extent);

  [[nodiscard]] const LossExtent& extent() const noexcept { return extent_; }
  [[nodiscard]] LossOutputs outputs() const noexcept;
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
  DeviceArray<float> host_losses_;
  DeviceArray<Prediction> host_predictions_;
  DeviceArray<float> host_logits_;
};

}  // namespace lockstep::gpu
