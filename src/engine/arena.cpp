#include "lockstep/engine/arena.hpp"

#include "lockstep/engine/unit_exchange.hpp"

#include <algorithm>
#include <cassert>
#include <functional>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr int unit_of_vectors = std::numeric_limits<int>::max();

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
  const auto apart = [&](ParameterId id) {
    return rule.vectors_apart &&
           graph.parameters()[static_cast<std::size_t>(id)].kind != ParameterKind::weight;
  };
  std::vector<ParameterId> order = ready;
  std::stable_partition(order.begin(), order.end(), std::not_fn(apart));
  for (const ParameterId id : order) {
    const auto index = static_cast<std::size_t>(id);
    const int next = rule.unit_of.empty() ? unit
                     : apart(id)          ? unit_of_vectors
                                          : rule.unit_of[index];
    if (next != unit) {
      unit = next;
      end = round_up(end, multiple);
      if (!layout.units.empty()) layout.units.back().end = end;
      layout.units.push_back({.begin = end, .end = end, .in_fp32 = apart(id)});
    }
    layout.views.push_back({.parameter = id,
                            .kind = graph.parameters()[index].kind,
                            .offset = end,
                            .size = size_of(id),
                            .lr_scale = graph.parameters()[index].lr_scale});
    end = round_up(layout.views.back().end(), arena_alignment);
  }
  if (!layout.units.empty()) layout.units.back().end = round_up(end, multiple);
  return layout;
}

ArenaLayout lay_out_without_padding(const Graph& graph, const UnitRule& rule) {
  const auto size_of = [&graph](ParameterId id) {
    return static_cast<std::size_t>(
        graph.parameters()[static_cast<std::size_t>(id)].shape.elements());
  };
  return lay_out(graph, gradient_order(graph), size_of, rule);
}

std::vector<std::size_t> filled_after_each(const ArenaLayout& layout,
                                           const std::vector<ParameterId>& ready) {
  std::vector<bool> is_ready(ready.size(), false);
  std::vector<std::size_t> filled(ready.size());
  std::size_t view = 0;
  for (const ParameterId id : ready) {
    is_ready[static_cast<std::size_t>(id)] = true;
    while (view < layout.views.size() &&
           is_ready[static_cast<std::size_t>(layout.views[view].parameter)]) {
      ++view;
    }
    filled[static_cast<std::size_t>(id)] =
        view < layout.views.size() ? layout.views[view].offset : layout.size();
  }
  return filled;
}

StepUnits step_units(const ArenaLayout& layout, const Graph& graph) {
  StepUnits units{.unit_of = std::vector<std::size_t>(graph.parameters().size()),
                  .filled_after = filled_after_each(layout, gradient_order(graph))};
  for (const ArenaUnit& unit : layout.units) {
    units.ends.push_back(unit.end);
    units.stays.push_back(unit.in_fp32);
  }
  for (const ArenaView& view : layout.views) {
    units.unit_of[static_cast<std::size_t>(view.parameter)] = static_cast<std::size_t>(
        std::ranges::upper_bound(units.ends, view.offset) - units.ends.begin());
  }
  return units;
}

}  // namespace lockstep
