#include "input_queue.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::gpu {

InputQueue::InputQueue(Device& device, std::int64_t channels, std::unique_ptr<BatchDecoder> decoder)
    : device_(device), channels_(static_cast<std::size_t>(channels)), decoder_(std::move(decoder)) {
  for (Slot& slot : slots_) {
    slot.arrived = device.make_event();
    slot.read = device.make_event();
  }
}

void InputQueue::grow(Slot& slot, std::size_t pixels, std::size_t images) {
  if (slot.pixels.size() >= pixels && slot.cuts.size() >= images) return;
  device_.synchronize();  // no work may use the old buffers
  slot.pixels = {};
  slot.pixels = DeviceArray<std::uint8_t>(device_, pixels);
  slot.cuts = DeviceArray<PixelCut>(device_, images);
  slot.values = DeviceArray<float>(device_, channels_ * 256);
  slot.erased = SampleValues<PixelBox>(device_, images);
  slot.targets = DeviceTargets(device_, images);
  slot.dropped = SampleValues<std::uint64_t>(device_, images);
}

InputQueue::Slot* InputQueue::find(const std::uint8_t* from) noexcept {
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [from](const Slot& each) { return each.from == from; });
  return slot == slots_.end() ? nullptr : &*slot;
}

void InputQueue::begin(const Batch& batch) {
  Slot* const slot = find(nullptr);
  if (slot == nullptr) {
    fail(ExitStatus::internal, "a batch cannot be prefetched ({} are in flight already)",
         slots_.size());
  }
  const PixelImages& images = batch.pixels;
  const auto count = static_cast<std::size_t>(batch.size);
  const std::size_t image_bytes =
      static_cast<std::size_t>(images.height) * static_cast<std::size_t>(images.width) * channels_;
  const std::size_t bytes = count * image_bytes;
  grow(*slot, bytes, count);
  device_.queue_wait(Device::Queue::transfers, *slot->read);
  if (images.encoded.images != nullptr) {
    decode(batch, slot->pixels.data(), image_bytes);
  } else {
    device_.transfer_to_device(slot->pixels.data(), images.data, bytes);
  }
  device_.transfer_to_device(slot->cuts.data(), images.cuts, count * sizeof(PixelCut));
  device_.transfer_to_device(slot->values.data(), images.values, slot->values.bytes());
  const auto transfer = [this](void* to, const void* from, std::size_t size) {
    device_.transfer_to_device(to, from, size);
  };
  slot->erased.load(images.erased, count, transfer);
  slot->targets.load(batch.targets, count, transfer);
  slot->dropped.load(batch.dropped.masks, count, transfer);
  device_.mark(*slot->arrived, Device::Queue::transfers);
  slot->from = images.data;
}

void InputQueue::decode(const Batch& batch, std::uint8_t* pixels, std::size_t image_bytes) {
  const PixelImages& images = batch.pixels;
  decode_targets_.clear();
  const auto transfer = [&](std::size_t begin, std::size_t end) {
    device_.transfer_to_device(pixels + begin * image_bytes, images.data + begin * image_bytes,
                               (end - begin) * image_bytes);
  };
  // Images that the loader has decoded are copied in runs.
  const auto count = static_cast<std::size_t>(batch.size);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (images.encoded.images[i].file == nullptr) continue;
    transfer(begin, i);
    begin = i + 1;
    decode_targets_.push_back(
        {.image = static_cast<std::int64_t>(i), .pixels = pixels + i * image_bytes});
  }
  transfer(begin, count);
  const std::vector<DecodeTarget> all_refused = decoder_->decode(images, decode_targets_);
  const auto on_device = std::ssize(decode_targets_) - std::ssize(all_refused);
  decoder_->count({.device = on_device, .host = batch.size - on_device});
  for (const DecodeTarget& refused : all_refused) {
    images.encoded.host->decode(refused.image);
    const auto i = static_cast<std::size_t>(refused.image);
    transfer(i, i + 1);
  }
}

DeviceBatch InputQueue::take(const Batch& batch, const ImageExtent& extent) {
  if (find(batch.pixels.data) == nullptr) begin(batch);
  const std::size_t bytes = cut_images_workspace(extent, batch.pixels.height, batch.pixels.width);
  if (workspace_.size() < bytes) {
    device_.synchronize();  // no work may use the old buffer
    workspace_ = {};
    workspace_ = DeviceArray<std::byte>(device_, bytes);
  }
  Slot& slot = *find(batch.pixels.data);
  device_.queue_wait(Device::Queue::work, *slot.arrived);
  slot.from = nullptr;
  taken_ = &slot;
  const Targets targets = slot.targets.get();
  return {.images = {.data = slot.pixels.data(),
                     .height = batch.pixels.height,
                     .width = batch.pixels.width,
                     .cuts = slot.cuts.data(),
                     .values = slot.values.data(),
                     .count = batch.size,
                     .workspace = workspace_.data(),
                     .erased = slot.erased.data(),
                     .mixes = targets.mixes},
          .targets = targets,
          .dropped = {.masks = slot.dropped.data()}};
}

void InputQueue::release() {
  device_.mark(*taken_->read, Device::Queue::work);
}

void InputQueue::await_taken() {
  if (taken_ != nullptr) device_.wait(*taken_->arrived);
}

void InputQueue::discard(const Batch& batch) {
  Slot* const slot = find(batch.pixels.data);
  if (slot == nullptr) return;
  device_.wait(*slot->arrived);
  slot->from = nullptr;
}

}  // namespace lockstep::gpu
