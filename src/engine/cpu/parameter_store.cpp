#include "parameter_store.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::cpu {
namespace {

constexpr std::size_t view_alignment = 16;  // values

}  // namespace

ParameterStore::ParameterStore(const Graph& graph, const Options& options) {
  assert(options.ready.size() == graph.parameters().size());
  for (const Desc& format : options.formats) {
    entries_.push_back({.format = format, .offsets = BlockedOffsets(format)});
  }
  for (const ParameterId id : options.ready) {
    Entry& entry = entries_[static_cast<std::size_t>(id)];
    entry.offset = layout_.size();
    layout_.views.push_back({.parameter = id,
                             .kind = graph.parameters()[static_cast<std::size_t>(id)].kind,
                             .offset = entry.offset,
                             .size = padded_size(entry.format)});
    entry.filled = layout_.size();
    static_assert(AlignedBuffer<float>::alignment == view_alignment * sizeof(float));
  }
  parameters_ = AlignedBuffer<float>(layout_.size());
  gradients_ = AlignedBuffer<float>(layout_.size() + options.tail_size);
}

void ParameterStore::to_plain(std::span<const float> arena, ParameterId id,
                              std::span<float> plain) const {
  const Entry& from = entry(id);
  assert(arena.size() >= layout_.size() && plain.size() == from.offsets.elements());
  const float* view = arena.data() + from.offset;
  from.offsets.for_each([&](std::size_t i, std::size_t offset) { plain[i] = view[offset]; });
}

void ParameterStore::from_plain(std::span<const float> plain, ParameterId id,
                                std::span<float> arena) const {
  const Entry& to = entry(id);
  assert(arena.size() >= layout_.size() && plain.size() == to.offsets.elements());
  float* view = arena.data() + to.offset;
  std::fill_n(view, padded_size(to.format), 0.0F);
  to.offsets.for_each([&](std::size_t i, std::size_t offset) { view[offset] = plain[i]; });
}

}  // namespace lockstep::cpu
