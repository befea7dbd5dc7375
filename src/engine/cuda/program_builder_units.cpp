#include "program_builder.hpp"

#include <algorithm>

// The part of ProgramBuilder that handles units, as the CPU engine's does.

namespace lockstep::cuda {
namespace {

std::byte* bytes_of(void* values) noexcept {
  return static_cast<std::byte*>(values);
}

}  // namespace

ProgramBuilder::Mark ProgramBuilder::here() noexcept {
  return {.index = steps().size(), .position = std::max(0, position_ - 1), .filled = filled_};
}

void ProgramBuilder::begin_backward() {
  in_backward_ = true;
  units_.schedule.begin_backward();
  units_.prefetch = here();
}

void ProgramBuilder::enter(std::size_t unit) {
  if (!units_.schedule.enter(unit)) return;
  const std::size_t size = state_.arena.layout().units[unit].size();
  UnitExchange* const exchange = state_.exchange;
  const DataType gathered = state_.arena.is_16_bit(unit) ? type() : DataType::f32;
  const std::size_t bytes = size * size_of(gathered);
  const Tensor values = make(bytes);
  requests_[static_cast<std::size_t>(values.buffer)].first_step = units_.prefetch.position;
  steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(units_.prefetch.index),
                 {.name = "start of a gather",
                  .run =
                      [exchange, unit, values, bytes](const Frame& f) {
                        exchange->start_gather(unit, {f.as<std::byte>(values), bytes});
                      },
                  .filled = units_.prefetch.filled,
                  .meets = true});
  touch(values);
  list({.name = "wait for a gather",
        .run = [exchange, unit](const Frame&) { exchange->await_gather(unit); },
        .meets = true});
  units_.prefetch = here();
  units_.gathered[unit] = values;
  units_.working[unit] = values;
  // Vectors with in_fp32 are used as they are.
  if (gathered == type() || state_.arena.layout().units[unit].in_fp32) return;
  const Tensor working = make(size * size_of(type()));
  emit("weights in the type of values", {values, working},
       [values, working, size, type = type()](const Frame& f) {
         convert(f.stream(), f.at(values), DataType::f32, f.at(working), type, size);
       });
  units_.working[unit] = working;
}

Place ProgramBuilder::parameter(ParameterId id) {
  const ParameterArena& arena = state_.arena;
  if (arena.holds_parameters()) return {.fixed = arena.parameter(id), .tensor = {}};
  enter(arena.unit_of(id));
  return {.tensor = *units_.gathered[arena.unit_of(id)],
          .offset = arena.offset_in_unit(id) * sizeof(float)};
}

Place ProgramBuilder::working(ParameterId id) {
  const ParameterArena& arena = state_.arena;
  if (arena.holds_parameters()) {
    return {.fixed = state_.working.of(arena, id), .tensor = {}};
  }
  enter(arena.unit_of(id));
  return {.tensor = *units_.working[arena.unit_of(id)],
          .offset = arena.offset_in_unit(id) * size_of(type())};
}

Tensor ProgramBuilder::unit_gradients(std::size_t unit) {
  std::optional<Tensor>& values = units_.gradients[unit];
  if (!values) {
    const std::size_t bytes = state_.arena.layout().units[unit].size() * sizeof(float);
    values = make(bytes);
    // Gaps between tensors must be zero.
    emit("clearing of a unit", {*values},
         [values = *values, bytes](const Frame& f) { f.device.clear(f.at(values), bytes); });
  }
  return *values;
}

Place ProgramBuilder::gradient_of(ParameterId id) {
  const ParameterArena& arena = state_.arena;
  if (arena.holds_gradients()) return {.fixed = bytes_of(arena.gradient(id)), .tensor = {}};
  return {.tensor = unit_gradients(arena.unit_of(id)),
          .offset = arena.offset_in_unit(id) * sizeof(float)};
}

void ProgramBuilder::await_reduction(std::size_t unit) {
  touch(*units_.gradients[unit]);
  list(
      {.name = "wait for a reduction",
       .run = [exchange = state_.exchange, unit](const Frame&) { exchange->await_reduction(unit); },
       .meets = true});
}

void ProgramBuilder::start_reduction(std::size_t unit) {
  const Tensor values = *units_.gradients[unit];
  const std::size_t size = state_.arena.layout().units[unit].size();
  touch(values);
  list({.name = "start of a reduction",
        .run =
            [exchange = state_.exchange, unit, values, size](const Frame& f) {
              exchange->start_reduction(unit, {f.as<const float>(values), size});
            },
        .meets = true});
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

}  // namespace lockstep::cuda
