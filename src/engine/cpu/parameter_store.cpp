#include "parameter_store.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::cpu {

ParameterStore::ParameterStore(const Graph& graph, const Options& options) : units_(options.units) {
  static_assert(AlignedBuffer<float>::alignment == arena_alignment * sizeof(float));
  for (const Desc& format : options.formats) {
    entries_.push_back({.format = format, .offsets = BlockedOffsets(format)});
  }
  layout_ = lay_out(
      graph, options.ready, [this](ParameterId id) { return padded_size(entry(id).format); },
      options.units.rule);
  const std::vector<std::size_t> filled = filled_after_each(layout_, options.ready);
  std::size_t unit = 0;
  for (const ArenaView& view : layout_.views) {
    Entry& entry = entries_[static_cast<std::size_t>(view.parameter)];
    while (!layout_.units.empty() && view.offset >= layout_.units[unit].end) ++unit;
    entry.offset = view.offset;
    entry.filled = filled[static_cast<std::size_t>(view.parameter)];
    entry.unit = unit;
  }
  if (units_.holds_16_bit()) {
    held_ = AlignedBuffer<std::byte>(units_.held_end(layout_.units.back()));
  } else if (holds_parameters()) {
    parameters_ = AlignedBuffer<float>(layout_.size());
  }
  gradients_ = AlignedBuffer<float>((holds_gradients() ? layout_.size() : 0) + options.tail_size);
}

std::span<std::byte> ParameterStore::held_unit(std::size_t unit) noexcept {
  if (!units_.holds_16_bit()) return {};
  const ArenaUnit& place = layout_.units[unit];
  const std::size_t begin = UnitOptions::held_begin(place);
  return held_.span().subspan(begin, units_.held_end(place) - begin);
}

void* ParameterStore::parameter(ParameterId id) noexcept {
  if (!units_.holds_16_bit()) return parameters_.data() + offset_of(id);
  return held_unit(unit_of(id)).data() + bytes_into_unit(id);
}

std::size_t ParameterStore::bytes_into_unit(ParameterId id) const {
  const ArenaUnit& unit = layout_.units[unit_of(id)];
  return (offset_of(id) - unit.begin) * units_.value_bytes(unit);
}

DataType ParameterStore::type_of(std::size_t unit) const {
  return !layout_.units.empty() && units_.is_16_bit(layout_.units[unit]) ? DataType::bf16
                                                                         : DataType::f32;
}

Desc ParameterStore::used_format_of(ParameterId id) const {
  return *in_type(format_of(id), type_of(unit_of(id)));
}

void ParameterStore::to_plain(std::span<const float> view, ParameterId id,
                              std::span<float> plain) const {
  const Entry& from = entry(id);
  assert(view.size() == padded_size(from.format) && plain.size() == from.offsets.elements());
  from.offsets.for_each([&](std::size_t i, std::size_t offset) { plain[i] = view[offset]; });
}

void ParameterStore::from_plain(std::span<const float> plain, ParameterId id,
                                std::span<float> view) const {
  const Entry& to = entry(id);
  assert(view.size() == padded_size(to.format) && plain.size() == to.offsets.elements());
  std::ranges::fill(view, 0.0F);
  to.offsets.for_each([&](std::size_t i, std::size_t offset) { view[offset] = plain[i]; });
}

}  // namespace lockstep::cpu
