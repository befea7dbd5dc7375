#include "slot_reader.hpp"

#include "batch_request.hpp"
#include "lockstep/core/current_error.hpp"
#include "lockstep/data/augment.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::int64_t values_of(const ImageShape& shape) noexcept {
  return shape.channels * shape.height * shape.width;
}

}  // namespace

SlotReader::SlotReader(const Dataset& dataset, const LoaderOptions& options)
    : options_(options),
      normalizer_(options.mean, options.std),
      order_(dataset.info().samples, options.seed, options.shuffle_block),
      takes_pixels_(options.format.content == ImageContent::pixels),
      encodes_(decodes_on_device(options)),
      stored_(pixel_shape(dataset.info(), options)),
      image_size_(values_of(takes_pixels_ ? stored_ : options.image)) {}

void SlotReader::allocate(std::span<LoaderSlot> slots) {
  HostMemory* const memory = options_.format.memory;
  const auto capacity = static_cast<std::size_t>(options_.batch_capacity);
  // With mixing, two partners that are not in the batch follow it.
  const std::size_t read = capacity + (mixes_partners() ? 2 : 0);
  const std::size_t images = read * static_cast<std::size_t>(image_size_);
  for (LoaderSlot& slot : slots) {
    slot.labels = HostBuffer<std::int32_t>(memory, read);
    if (options_.mix.any()) slot.mixes = HostBuffer<ImageMix>(memory, capacity);
    if (!options_.drop_probabilities.empty()) {
      slot.dropped = HostBuffer<std::uint64_t>(memory, capacity);
    }
    if (takes_pixels_) {
      slot.pixels = HostBuffer<std::uint8_t>(memory, images);
      slot.cuts = HostBuffer<PixelCut>(memory, capacity);
      if (options_.random_erasing > 0) slot.erased = HostBuffer<PixelBox>(memory, capacity);
      if (encodes_) {
        slot.encoded.resize(capacity);
        slot.files.resize(capacity);
      }
    } else {
      slot.images = HostBuffer<float>(memory, images);
      // The engine also reads the unused rest of a short batch, which must be initialised.
      std::ranges::fill(slot.images.span(), 0.0F);
    }
  }
  if (!takes_pixels_) return;
  pixel_values_ = HostBuffer<float>(memory, normalizer_.values().size());
  std::ranges::copy(normalizer_.values(), pixel_values_.data());
}

Batch SlotReader::batch_of(LoaderSlot& slot, HostDecoding& host) const {
  Batch batch{.targets = {.labels = slot.labels.data(), .mixes = slot.mixes.data()},
              .size = slot.request->count,
              .dropped = {.masks = slot.dropped.data()}};
  if (takes_pixels_) {
    batch.pixels = {.data = slot.pixels.data(),
                    .height = static_cast<std::int32_t>(stored_.height),
                    .width = static_cast<std::int32_t>(stored_.width),
                    .cuts = slot.cuts.data(),
                    .values = pixel_values_.data(),
                    .erased = slot.erased.data(),
                    .encoded = {.images = encodes_ ? slot.encoded.data() : nullptr, .host = &host}};
  } else {
    batch.values = slot.images.data();
  }
  return batch;
}

SampleCopy SlotReader::sample_of(const LoaderSlot& slot, std::int64_t i) const noexcept {
  return sample_at(*slot.request, slot.request->first + i, options_, order_);
}

std::optional<Error> SlotReader::read(SampleReader& reader, LoaderSlot& slot,
                                      std::int64_t i) const noexcept {
  try {
    const SampleCopy sample = sample_of(slot, i);
    read_image(reader, slot, sample, i);
    if (options_.mix.any()) mix(reader, slot, i);
    if (!options_.drop_probabilities.empty()) {
      slot.dropped[static_cast<std::size_t>(i)] = draw_dropped_blocks(
          options_.drop_probabilities, options_.seed, slot.request->epoch, sample);
    }
    return std::nullopt;
  } catch (...) {
    return current_error();
  }
}

void SlotReader::read_image(SampleReader& reader, LoaderSlot& slot, SampleCopy sample,
                            std::int64_t i) const {
  const std::int64_t epoch = slot.request->epoch;
  const std::int64_t at = i * image_size_;
  const auto index = static_cast<std::size_t>(i);
  slot.labels[index] = takes_pixels_
                           ? reader.read(epoch, sample,
                                         SampleReader::PixelTarget{
                                             .pixels = slot.pixels.data() + at,
                                             .cut = slot.cuts.data() + i,
                                             .encoded = encodes_ ? &slot.encoded[index] : nullptr,
                                             .file = encodes_ ? &slot.files[index] : nullptr})
                           : reader.read(epoch, sample, slot.images.data() + at);
  if (options_.random_erasing > 0) erase(slot, i, sample);
}

void SlotReader::decode(SampleReader& reader, LoaderSlot& slot, std::int64_t i) const {
  reader.decode(sample_of(slot, i), slot.encoded[static_cast<std::size_t>(i)],
                slot.pixels.data() + i * image_size_);
}

void SlotReader::erase(LoaderSlot& slot, std::int64_t i, SampleCopy sample) const noexcept {
  PhiloxStream random = erasing_stream(options_.seed, slot.request->epoch, sample);
  const PixelBox box = draw_erased_box(random, options_.random_erasing, options_.image);
  if (takes_pixels_) {
    slot.erased[static_cast<std::size_t>(i)] = box;
  } else {
    erase_box(box, options_.image, options_.format.layout, slot.images.data() + i * image_size_);
  }
}

void SlotReader::mix(SampleReader& reader, LoaderSlot& slot, std::int64_t i) const {
  const BatchRequest& request = *slot.request;
  const Slice step = step_of(request);
  const std::int64_t offset = request.first + i - step.begin;
  const std::int64_t first = request.first + i - offset % 2;  // position of the pair's first
  const std::int64_t begin = first - request.first;           // its index in the batch
  const bool has_second = first + 1 < step.end();
  if (!has_second) {
    slot.mixes[static_cast<std::size_t>(i)] = {.partner = static_cast<std::int32_t>(i)};
    return;
  }
  if (offset % 2 == 0 && i + 1 < request.count) return;  // mixed when the second is read
  const std::int64_t one = begin >= 0 ? begin : options_.batch_capacity;
  const std::int64_t other = begin + 1 < request.count ? begin + 1 : options_.batch_capacity + 1;
  if (one != begin) read_image(reader, slot, sample_at(request, first, options_, order_), one);
  if (other != begin + 1)
    read_image(reader, slot, sample_at(request, first + 1, options_, order_), other);
  PhiloxStream random = mixing_stream(options_.seed, request.epoch, first / 2);
  ImageMix mix = draw_mix(random, options_.mix, options_.image);
  for (const auto& [sample, partner] : {std::pair(one, other), std::pair(other, one)}) {
    if (sample >= request.count) continue;
    mix.partner = static_cast<std::int32_t>(partner);
    slot.mixes[static_cast<std::size_t>(sample)] = mix;
  }
  if (takes_pixels_) return;
  mix_pair(mix, options_.image, options_.format.layout, slot.images.data() + one * image_size_,
           slot.images.data() + other * image_size_);
}

}  // namespace lockstep
