#include "lockstep/engine/arena.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace lockstep {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::size_t ArenaLayout::size() const noexcept {
  if (!units.empty()) return units.back().end;
  return views.empty() ? 0 : round_up(views.back().end(), arena_alignment);
}

const ArenaView& ArenaLayout::view_of(ParameterId id) const {
  return *std::ranges::find(views, id, &ArenaView::parameter);
}

ArenaLayout lay_out(const Graph& graph, const std::vector<ParameterId>& ready,
                    const std::function<std::size_t(ParameterId)>& size_of, const UnitRule& rule) {
  assert(ready.size() == graph.parameters().size());
  const std::size_t multiple = std::lcm(rule.multiple, arena_alignment);
  ArenaLayout layout;
  int unit = -1;
  std::size_t end = 0;
  for (const ParameterId id : ready) {
    const auto index = static_cast<std::size_t>(id);
    if (!rule.unit_of.empty() && rule.unit_of[index] != unit) {
      unit = rule.unit_of[index];
      end = round_up(end, multiple);
      if (!layout.units.empty()) layout.units.back().end = end;
      layout.units.push_back({.begin = end, .end = end});
    }
    layout.views.push_back({.parameter = id,
                            .kind = graph.parameters()[index].kind,
                            .offset = end,
                            .size = size_of(id)});
    end = round_up(layout.views.back().end(), arena_alignment);
  }
  if (!layout.units.empty()) layout.units.back().end = round_up(end, multiple);
  return layout;
}

}  // namespace lockstep
