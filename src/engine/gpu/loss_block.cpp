#include "loss_block.hpp"

#include "../lowering/program.hpp"

namespace lockstep::gpu {

LossBlock::LossBlock(DeviceAllocator& memory, const LossExtent& extent)
    : extent_(extent),
      scale_(memory, 1),
      logits_(memory, static_cast<std::size_t>(extent.batch * extent.classes)),
      kept_(memory, static_cast<std::size_t>(extent.batch)),
      losses_(memory, kept_.size()),
      predictions_(memory, kept_.size()),
      host_losses_(memory, kept_.size(), MemoryPlace::host),
      host_predictions_(memory, kept_.size(), MemoryPlace::host),
      host_logits_(memory, logits_.size(), MemoryPlace::host) {}

LossOutputs LossBlock::outputs() const noexcept {
  return {.logits = logits_.data(),
          .kept = kept_.data(),
          .losses = losses_.data(),
          .predictions = predictions_.data()};
}

void LossBlock::set_scale(DeviceQueues& device, float scale) {
  if (last_scale_ == scale) return;
  set_value(device.stream(), scale, scale_.data());
  last_scale_ = scale;
}

void LossBlock::fetch(DeviceQueues& device) {
  device.copy_to_host(host_losses_.data(), losses_.data(), losses_.bytes());
  device.copy_to_host(host_predictions_.data(), predictions_.data(), predictions_.bytes());
}

BatchMetrics LossBlock::metrics(std::int64_t samples) const noexcept {
  const auto count = static_cast<std::size_t>(samples);
  return sum_metrics<float>(host_losses_.span().first(count),
                            host_predictions_.span().first(count));
}

std::span<const float> LossBlock::logits(DeviceQueues& device) {
  device.copy_to_host(host_logits_.data(), logits_.data(), logits_.bytes());
  device.synchronize();
  return {host_logits_.data(), host_logits_.size()};
}

}  // namespace lockstep::gpu
