#include "parameter_store.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::cpu {

ParameterStore::ParameterStore(const Graph& graph, const Options& options)
    : holds_parameters_(options.units.holds_parameters),
      holds_gradients_(options.units.holds_gradients) {
  static_assert(AlignedBuffer<float>::alignment == arena_alignment * sizeof(float));
  for (const Desc& format : options.formats) {
    entries_.push_back({.format = format, .offsets = BlockedOffsets(format)});
  }
  layout_ = lay_out(
      graph, options.ready, [this](ParameterId id) { return padded_size(entry(id).format); },
      options.units.rule);
  std::size_t unit = 0;
  for (std::size_t i = 0; i < layout_.views.size(); ++i) {
    const ArenaView& view = layout_.views[i];
    Entry& entry = entries_[static_cast<std::size_t>(view.parameter)];
    while (!layout_.units.empty() && view.offset >= layout_.units[unit].end) ++unit;
    entry.offset = view.offset;
    entry.filled = i + 1 < layout_.views.size() ? layout_.views[i + 1].offset : layout_.size();
    entry.unit = unit;
  }
  if (holds_parameters_) parameters_ = AlignedBuffer<float>(layout_.size());
  gradients_ = AlignedBuffer<float>((holds_gradients_ ? layout_.size() : 0) + options.tail_size);
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
