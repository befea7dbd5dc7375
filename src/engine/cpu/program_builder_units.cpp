#include "program_builder.hpp"

#include <algorithm>
#include <utility>
#include <vector>

// The part of ProgramBuilder that handles parameters and gradients in the arenas and in units.

namespace lockstep::cpu {
namespace {

Desc vector_of(std::size_t size, DataType type) {
  return {Dims{static_cast<Dims::value_type>(size)}, type, Tag::x};
}

/// Begin and end of each gap between the tensors of a unit that are not frozen, in values.
std::vector<std::pair<std::size_t, std::size_t>> gaps_of(const ArenaLayout& layout,
                                                         const ArenaUnit& unit) {
  std::vector<std::pair<std::size_t, std::size_t>> gaps;
  std::size_t end = unit.begin;
  const auto add_gap = [&](std::size_t begin) {
    if (begin > end) gaps.emplace_back(end - unit.begin, begin - unit.begin);
  };
  for (const ArenaView& view : layout.views) {
    if (view.offset < unit.begin || view.offset >= unit.end || view.lr_scale == 0) continue;
    add_gap(view.offset);
    end = view.end();
  }
  add_gap(unit.end);
  return gaps;
}

}  // namespace

DataType ProgramBuilder::gathered_type(std::size_t unit) const {
  return state_.arena.is_16_bit(unit) ? DataType::bf16 : DataType::f32;
}

Tensor ProgramBuilder::master(ParameterId id) {
  ParameterArena& arena = state_.arena;
  const bool held = arena.holds_parameters();
  const Desc format =
      *in_type(state_.formats[static_cast<std::size_t>(id)], gathered_type(arena.unit_of(id)));
  if (held) return fixed(format, arena.parameter(id));
  return part(gathered(arena.unit_of(id)), format, arena.bytes_into_unit(id));
}

Tensor ProgramBuilder::make_unit(std::size_t unit, UnitContent content) {
  const std::size_t size = state_.arena.layout().units[unit].size();
  return make(
      vector_of(size, content == UnitContent::parameters ? gathered_type(unit) : DataType::f32));
}

void ProgramBuilder::clear_gaps(std::size_t unit, const Tensor& gradients) {
  const ArenaLayout& layout = state_.arena.layout();
  emit_loop("clearing of gaps", {gradients},
            [gaps = gaps_of(layout, layout.units[unit])](const LoopStep::Addresses& at) {
              auto* const floats = static_cast<float*>(at[0]);
              for (const auto& [begin, end] : gaps) std::fill(floats + begin, floats + end, 0.0F);
            });
}

ListedStep ProgramBuilder::exchange_step(std::string name, const Tensor& tensor,
                                         std::function<void(std::byte*)> run,
                                         bool in_last_micro_step) {
  return {.step = std::make_unique<LoopStep>(std::move(name), std::vector{tensor.memory},
                                             [run = std::move(run)](const LoopStep::Addresses& at) {
                                               run(static_cast<std::byte*>(at[0]));
                                             }),
          .when = in_last_micro_step ? When::reducing : When::always};
}

Tensor ProgramBuilder::arena_gradient(ParameterId id) {
  ParameterArena& arena = state_.arena;
  const Desc& format = state_.formats[static_cast<std::size_t>(id)];
  if (arena.holds_gradients()) {
    return fixed(format, arena.gradient(id));
  }
  const std::size_t unit = arena.unit_of(id);
  return part(unit_gradients(unit), format, arena.offset_in_unit(id) * sizeof(float));
}

}  // namespace lockstep::cpu
