#include "lockstep/engine/parameter_arena.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace lockstep {

ParameterArena::ParameterArena(const Graph& graph, Options options, const Allocate& allocate)
    : units_(std::move(options.units)) {
  for (ParameterFormat& format : options.formats) entries_.push_back({.format = std::move(format)});
  layout_ = lay_out(
      graph, gradient_order(graph), [this](ParameterId id) { return size_of(id); }, units_.rule);
  step_units_ = lockstep::step_units(layout_, graph);
  for (const ArenaView& view : layout_.views) {
    entries_[static_cast<std::size_t>(view.parameter)].offset = view.offset;
  }
  if (holds_16_bit()) {
    const std::size_t bytes = units_.held_end(layout_.units.back());
    held_ = std::as_writable_bytes(keep(allocate(bytes / sizeof(float), Use::communication)));
  } else if (holds_parameters()) {
    // Units are gathered in place.
    const Use use = layout_.is_sharded() ? Use::communication : Use::computation;
    parameters_ = keep(allocate(layout_.size(), use));
  }
  const std::size_t gradients = (holds_gradients() ? layout_.size() : 0) + options.tail_size;
  if (gradients > 0) gradients_ = keep(allocate(gradients, Use::communication));
}

std::span<float> ParameterArena::keep(std::shared_ptr<ArenaMemory> memory) {
  memory_.push_back(std::move(memory));
  return memory_.back()->values();
}

std::span<std::byte> ParameterArena::held_unit(std::size_t unit) const noexcept {
  if (!holds_16_bit()) return {};
  return held_.subspan(UnitOptions::held_begin(layout_.units[unit]), unit_bytes(unit));
}

std::byte* ParameterArena::parameter(ParameterId id) const {
  if (holds_16_bit()) return held_unit(unit_of(id)).data() + bytes_into_unit(id);
  return std::as_writable_bytes(parameters_.subspan(offset_of(id))).data();
}

void ParameterArena::to_plain(std::span<const float> view, ParameterId id,
                              std::span<float> plain) const {
  assert(view.size() == size_of(id) && plain.size() == entry(id).format.offsets.elements());
  entry(id).format.offsets.for_each(
      [&](std::size_t i, std::size_t offset) { plain[i] = view[offset]; });
}

void ParameterArena::from_plain(std::span<const float> plain, ParameterId id,
                                std::span<float> view) const {
  assert(view.size() == size_of(id) && plain.size() == entry(id).format.offsets.elements());
  std::ranges::fill(view, 0.0F);
  entry(id).format.offsets.for_each(
      [&](std::size_t i, std::size_t offset) { view[offset] = plain[i]; });
}

}  // namespace lockstep
