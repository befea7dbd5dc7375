#include "loss_block.hpp"

#include "../lowering/program.hpp"

#include <algorithm>

namespace lockstep::gpu {
namespace {

template <typename T>
std::size_t bytes_of(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(T);
}

}  // namespace

LossBlock::LossBlock(Device& device, const LossExtent& extent) : extent_(extent) {
  using Place = DeviceArray<float>::Place;
  const auto batch = static_cast<std::size_t>(extent.batch);
  const std::size_t logits = batch * static_cast<std::size_t>(extent.classes);
  scale_ = DeviceArray<float>(device, 1);
  logits_ = DeviceArray<float>(device, logits);
  log_sums_ = DeviceArray<float>(device, batch);
  losses_ = DeviceArray<float>(device, batch);
  ranks_ = DeviceArray<std::int32_t>(device, batch);
  labels_ = DeviceArray<std::int32_t>(device, batch);
  mixes_ = DeviceArray<ImageMix>(device, batch);
  dropped_ = DeviceArray<std::uint64_t>(device, batch);
  host_labels_ = DeviceArray<std::int32_t>(device, batch, DeviceArray<std::int32_t>::Place::host);
  host_mixes_ = DeviceArray<ImageMix>(device, batch, DeviceArray<ImageMix>::Place::host);
  host_dropped_ =
      DeviceArray<std::uint64_t>(device, batch, DeviceArray<std::uint64_t>::Place::host);
  host_losses_ = DeviceArray<float>(device, batch, Place::host);
  host_ranks_ = DeviceArray<std::int32_t>(device, batch, DeviceArray<std::int32_t>::Place::host);
  host_logits_ = DeviceArray<float>(device, logits, Place::host);
  device.clear(labels_.data(), labels_.bytes());
}

LossOutputs LossBlock::outputs() const noexcept {
  return {.logits = logits_.data(),
          .log_sums = log_sums_.data(),
          .losses = losses_.data(),
          .ranks = ranks_.data()};
}

void LossBlock::load_labels(DeviceQueues& device, const BatchLabels& labels, std::int64_t samples) {
  std::copy_n(labels.labels, samples, host_labels_.data());
  device.copy_to_device(labels_.data(), host_labels_.data(), bytes_of<std::int32_t>(samples));
  mixed_ = labels.mixes != nullptr;
  if (mixed_) {
    std::copy_n(labels.mixes, samples, host_mixes_.data());
    device.copy_to_device(mixes_.data(), host_mixes_.data(), bytes_of<ImageMix>(samples));
  }
  drops_ = labels.dropped.masks != nullptr;
  if (drops_) {
    std::copy_n(labels.dropped.masks, samples, host_dropped_.data());
    device.copy_to_device(dropped_.data(), host_dropped_.data(), bytes_of<std::uint64_t>(samples));
  }
}

void LossBlock::take_labels(DeviceQueues& device, const BatchLabels& labels, std::int64_t samples) {
  device.copy_on_device(labels_.data(), labels.labels, bytes_of<std::int32_t>(samples));
  mixed_ = labels.mixes != nullptr;
  if (mixed_) device.copy_on_device(mixes_.data(), labels.mixes, bytes_of<ImageMix>(samples));
  drops_ = labels.dropped.masks != nullptr;
  if (drops_) {
    device.copy_on_device(dropped_.data(), labels.dropped.masks, bytes_of<std::uint64_t>(samples));
  }
}

void LossBlock::set_scale(DeviceQueues& device, float scale) {
  if (set_scale_ == scale) return;
  set_value(device.stream(), scale, scale_.data());
  set_scale_ = scale;
}

void LossBlock::fetch(DeviceQueues& device) {
  device.copy_to_host(host_losses_.data(), losses_.data(), losses_.bytes());
  device.copy_to_host(host_ranks_.data(), ranks_.data(), ranks_.bytes());
}

BatchMetrics LossBlock::metrics(std::int64_t samples) const noexcept {
  const auto count = static_cast<std::size_t>(samples);
  return sum_metrics<float>(host_losses_.span().first(count), host_ranks_.span().first(count));
}

std::span<const float> LossBlock::logits(DeviceQueues& device) {
  device.copy_to_host(host_logits_.data(), logits_.data(), logits_.bytes());
  device.synchronize();
  return {host_logits_.data(), host_logits_.size()};
}

}  // namespace lockstep::gpu
