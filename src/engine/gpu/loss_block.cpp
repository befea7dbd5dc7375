#include "loss_block.hpp"

#include "../lowering/program.hpp"

#include <algorithm>

namespace lockstep::gpu {
namespace {

std::size_t bytes_of(std::int64_t labels) {
  return static_cast<std::size_t>(labels) * sizeof(std::int32_t);
}

}  // namespace

LossBlock::LossBlock(Device& device, const LossExtent& extent) : extent_(extent) {
  using Place = DeviceArray<float>::Place;
  const auto batch = static_cast<std::size_t>(extent.batch);
  const std::size_t logits = batch * static_cast<std::size_t>(extent.classes);
  logits_ = DeviceArray<float>(device, logits);
  log_sums_ = DeviceArray<float>(device, batch);
  losses_ = DeviceArray<float>(device, batch);
  larger_ = DeviceArray<std::int32_t>(device, batch);
  labels_ = DeviceArray<std::int32_t>(device, batch);
  host_labels_ = DeviceArray<std::int32_t>(device, batch, DeviceArray<std::int32_t>::Place::host);
  host_losses_ = DeviceArray<float>(device, batch, Place::host);
  host_larger_ = DeviceArray<std::int32_t>(device, batch, DeviceArray<std::int32_t>::Place::host);
  host_logits_ = DeviceArray<float>(device, logits, Place::host);
  device.clear(labels_.data(), labels_.bytes());
}

LossOutputs LossBlock::outputs() const noexcept {
  return {.logits = logits_.data(),
          .log_sums = log_sums_.data(),
          .losses = losses_.data(),
          .larger = larger_.data()};
}

void LossBlock::load_labels(Device& device, const std::int32_t* labels, std::int64_t samples) {
  std::copy_n(labels, samples, host_labels_.data());
  device.copy_to_device(labels_.data(), host_labels_.data(), bytes_of(samples));
}

void LossBlock::take_labels(Device& device, const std::int32_t* labels, std::int64_t samples) {
  device.copy_on_device(labels_.data(), labels, bytes_of(samples));
}

void LossBlock::fetch(Device& device) {
  device.copy_to_host(host_losses_.data(), losses_.data(), losses_.bytes());
  device.copy_to_host(host_larger_.data(), larger_.data(), larger_.bytes());
}

BatchMetrics LossBlock::metrics(std::int64_t samples) const noexcept {
  const auto count = static_cast<std::size_t>(samples);
  return sum_metrics<float>(host_losses_.span().first(count), host_larger_.span().first(count));
}

std::span<const float> LossBlock::logits(Device& device) {
  device.copy_to_host(host_logits_.data(), logits_.data(), logits_.bytes());
  device.synchronize();
  return {host_logits_.data(), host_logits_.size()};
}

}  // namespace lockstep::gpu
