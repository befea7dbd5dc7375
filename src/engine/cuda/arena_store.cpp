#include "arena_store.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::cuda {

/// Calls visit(plain index, offset) for each element of (out, in, kernel, kernel).
template <typename Visit>
void ArenaStore::Entry::for_each(Visit&& visit) const {
  std::size_t plain = 0;
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t k = 0; k < area; ++k) {
        visit(plain++, static_cast<std::size_t>((o * area + k) * padded_in + i));
      }
    }
  }
}

ArenaStore::ArenaStore(Device& device, const Graph& graph, const Options& options)
    : type_(options.type), units_(options.units) {
  for (const Parameter& parameter : graph.parameters()) {
    const Shape& shape = parameter.shape;
    Entry entry;
    std::int64_t padded_out = 1;
    if (shape.rank() == 1) {
      entry.in = shape[0];
    } else {
      entry.out = shape[0];
      padded_out = padded_channels(entry.out, type_);
      entry.in = shape[1];
      if (shape.rank() == 4) entry.area = shape[2] * shape[3];
    }
    entry.padded_in = padded_channels(entry.in, type_);
    entry.size = static_cast<std::size_t>(padded_out * entry.area * entry.padded_in);
    entries_.push_back(entry);
  }
  layout_ = lay_out(
      graph, options.ready, [this](ParameterId id) { return entry(id).size; }, options.units.rule);
  const std::vector<std::size_t> filled = filled_after_each(layout_, options.ready);
  std::size_t unit = 0;
  for (const ArenaView& view : layout_.views) {
    Entry& entry = entries_[static_cast<std::size_t>(view.parameter)];
    while (!layout_.units.empty() && view.offset >= layout_.units[unit].end) ++unit;
    entry.unit = unit;
    entry.offset = view.offset;
    entry.filled = filled[static_cast<std::size_t>(view.parameter)];
  }
  // Units are gathered in place.
  const MemoryPlace sharded = layout_.units.empty() ? MemoryPlace::device : MemoryPlace::exchanged;
  if (units_.holds_16_bit()) {
    held_ = DeviceArray<std::byte>(device, units_.held_end(layout_.units.back()),
                                   MemoryPlace::exchanged);
    device.clear(held_.data(), held_.bytes());
  } else if (holds_parameters()) {
    parameters_ = DeviceArray<float>(device, layout_.size(), sharded);
    device.clear(parameters_.data(), parameters_.bytes());
    if (type_ != DataType::f32) working_ = DeviceArray<std::uint16_t>(device, layout_.size());
  }
  const std::size_t gradients = (holds_gradients() ? layout_.size() : 0) + options.tail_size;
  if (gradients > 0) {
    gradients_ = DeviceArray<float>(device, gradients, MemoryPlace::exchanged);
    device.clear(gradients_.data(), gradients_.bytes());
  }
}

std::span<std::byte> ArenaStore::held_unit(std::size_t unit) const noexcept {
  if (!units_.holds_16_bit()) return {};
  const ArenaUnit& place = layout_.units[unit];
  const std::size_t begin = UnitOptions::held_begin(place);
  return {held_.data() + begin, units_.held_end(place) - begin};
}

void* ArenaStore::held(ParameterId id) const {
  const std::size_t unit = unit_of(id);
  return held_unit(unit).data() + offset_in_unit(id) * units_.value_bytes(layout_.units[unit]);
}

void* ArenaStore::parameter(ParameterId id) const {
  return units_.holds_16_bit() ? held(id) : parameters_.data() + offset(id);
}

void* ArenaStore::working(ParameterId id) const {
  if (units_.holds_16_bit()) return held(id);
  if (type_ == DataType::f32) return parameter(id);
  return working_.data() + offset(id);
}

void ArenaStore::refresh(Device& device) const {
  if (working_.size() == 0) return;
  convert(device.stream(), parameters_.data(), DataType::f32, working_.data(), type_,
          parameters_.size());
}

void ArenaStore::to_plain(std::span<const float> view, ParameterId id,
                          std::span<float> plain) const {
  entry(id).for_each([&](std::size_t i, std::size_t at) { plain[i] = view[at]; });
}

void ArenaStore::from_plain(std::span<const float> plain, ParameterId id,
                            std::span<float> view) const {
  std::ranges::fill(view, 0.0F);
  entry(id).for_each([&](std::size_t i, std::size_t at) { view[at] = plain[i]; });
}

}  // namespace lockstep::cuda
