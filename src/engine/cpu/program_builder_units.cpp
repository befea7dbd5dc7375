#include "program_builder.hpp"
#include "unit_steps.hpp"

#include <algorithm>
#include <utility>
#include <vector>

// The part of ProgramBuilder that handles units. Parameters are gathered before their first use in
// a pass, the next unit's while this one computes. Gradients are reduced as soon as all of a unit's
// are final. If the engine does not hold them, both are among the activations.

namespace lockstep::cpu {
namespace {

Desc vector_of(std::size_t size, DataType type = DataType::f32) {
  return {Dims{static_cast<Dims::value_type>(size)}, type, Tag::x};
}

std::vector<std::pair<std::size_t, std::size_t>> gaps_of(const ArenaLayout& layout,
                                                         const ArenaUnit& unit) {
  std::vector<std::pair<std::size_t, std::size_t>> gaps;
  std::size_t end = unit.begin;
  const auto add_gap = [&](std::size_t begin) {
    if (begin > end) gaps.emplace_back(end - unit.begin, begin - unit.begin);
  };
  for (const ArenaView& view : layout.views) {
    if (view.offset < unit.begin || view.offset >= unit.end) continue;
    add_gap(view.offset);
    end = view.end();
  }
  add_gap(unit.end);
  return gaps;
}

}  // namespace

Tensor ProgramBuilder::part(const Tensor& whole, const Desc& desc, std::size_t offset) {
  Tensor result{.memory = dnnl::memory(desc, engine(), DNNL_MEMORY_NONE),
                .buffer = whole.buffer,
                .offset = whole.offset + offset};
  place(result);
  return result;
}

ProgramBuilder::Mark ProgramBuilder::here() const noexcept {
  return {.forward = lists_.forward.size(),
          .overwrite = lists_.backward_overwrite.size(),
          .accumulate = lists_.backward_accumulate.size(),
          .position = std::max(0, position_ - 1),
          .filled = filled_};
}

void ProgramBuilder::insert(std::unique_ptr<Step> step, const Mark& mark) {
  const ListedStep listed{.step = step.get(), .filled = mark.filled};
  const auto put = [&listed](std::vector<ListedStep>& list, std::size_t index) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(index), listed);
  };
  if (in_backward_) {
    put(lists_.backward_overwrite, mark.overwrite);
    put(lists_.backward_accumulate, mark.accumulate);
  } else {
    put(lists_.forward, mark.forward);
  }
  lists_.steps.push_back(std::move(step));
}

void ProgramBuilder::begin_backward() {
  in_backward_ = true;
  units_.schedule.begin_backward();
  units_.prefetch = here();
}

void ProgramBuilder::enter(std::size_t unit) {
  if (!units_.schedule.enter(unit)) return;
  std::vector<Tensor> touched;
  if (!state_.arena.holds_parameters()) {
    const ParameterArena& arena = state_.arena;
    Tensor values = make(vector_of(arena.layout().units[unit].size(), gathered_type(unit)));
    requests_[static_cast<std::size_t>(values.buffer)].first_step = units_.prefetch.position;
    insert(std::make_unique<StartGatherStep>(
               UnitPlace{.exchange = *state_.exchange, .unit = unit, .values = values.memory}),
           units_.prefetch);
    touched.push_back(values);
    units_.gathered[unit] = std::move(values);
  }
  emit(std::make_unique<AwaitGatherStep>(*state_.exchange, unit), touched);
  units_.prefetch = here();
}

DataType ProgramBuilder::gathered_type(std::size_t unit) const {
  return state_.arena.is_16_bit(unit) ? DataType::bf16 : DataType::f32;
}

Tensor ProgramBuilder::master(ParameterId id) {
  ParameterArena& arena = state_.arena;
  const bool held = arena.holds_parameters();
  // Parameters that are held are already up to date in backward.
  if (state_.exchange != nullptr && (!held || !in_backward_)) enter(arena.unit_of(id));
  const Desc format =
      *in_type(state_.formats[static_cast<std::size_t>(id)], gathered_type(arena.unit_of(id)));
  if (held) return fixed(format, arena.parameter(id));
  return part(*units_.gathered[arena.unit_of(id)], format, arena.bytes_into_unit(id));
}

Tensor ProgramBuilder::unit_gradients(std::size_t unit) {
  std::optional<Tensor>& values = units_.gradients[unit];
  if (!values) {
    const ArenaLayout& layout = state_.arena.layout();
    values = make(vector_of(layout.units[unit].size()));
    emit(std::make_unique<ClearGapsStep>(values->memory, gaps_of(layout, layout.units[unit])),
         {*values});
  }
  return *values;
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

void ProgramBuilder::await_reduction(std::size_t unit) {
  emit(std::make_unique<AwaitReductionStep>(*state_.exchange, unit), {*units_.gradients[unit]});
}

void ProgramBuilder::start_reduction(std::size_t unit) {
  const Tensor values = *units_.gradients[unit];
  emit(std::make_unique<StartReductionStep>(
           UnitPlace{.exchange = *state_.exchange, .unit = unit, .values = values.memory}),
       {values});
}

void ProgramBuilder::reduce_filled_units() {
  if (state_.arena.holds_gradients()) return;
  units_.schedule.reduce(
      filled_, [this](std::size_t unit) { await_reduction(unit); },
      [this](std::size_t unit) { start_reduction(unit); });
}

void ProgramBuilder::end_backward() {
  if (state_.arena.holds_gradients()) return;
  units_.schedule.end_backward([this](std::size_t unit) { await_reduction(unit); });
}

}  // namespace lockstep::cpu
