#include "program_builder.hpp"

#include <algorithm>
#include <cassert>
#include <span>

namespace lockstep::gpu {
namespace {

std::vector<std::size_t> group_ends(const ParameterArena& arena, const ProgramOptions& options) {
  const auto given = unit_ends(arena, options);
  std::vector<std::size_t> ends(given.begin(), given.end());
  ends.push_back(arena.layout().size());
  return ends;
}

}  // namespace

ProgramBuilder::ProgramBuilder(EngineState& state, StatisticsBlock& statistics,
                               const StepGraph& steps, const ProgramOptions& options)
    : GraphBuilder({.graph = graph_of(options, state.graph), .steps = steps, .arena = state.arena},
                   options),
      state_(state),
      statistics_(statistics),
      needs_gradient_(lockstep::needs_gradient(state.graph)),
      working_(state.arena.layout().units.size()),
      group_ends_(group_ends(state.arena, options)) {}

Extent ProgramBuilder::extent(ValueId id) const {
  const Shape& shape = graph().nodes()[at(id)].output;
  Extent extent{.batch = batch_size(),
                .channels = shape[0],
                .padded = padded_channels(shape[0]),
                .gpu = state_.gpu};
  if (shape.rank() == 3) {
    extent.height = shape[1];
    extent.width = shape[2];
  }
  return extent;
}

Tensor ProgramBuilder::make_like(ValueId id) {
  return make(extent(id).values() * size_of(type()));
}

void ProgramBuilder::emit(std::string name, const std::vector<Tensor>& touched,
                          std::function<void(const LaunchContext&)> run) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : touched) {
    touch(tensor);
    if (tensor.buffer >= 0) bytes += lists().bytes_of(tensor.buffer);
  }
  lists().add({.name = std::move(name), .run = std::move(run), .bytes = bytes});
}

Tensor ProgramBuilder::sum(StepValueId left_id, StepValueId right_id) {
  const Tensor left = value(left_id);
  const Tensor right = value(right_id);
  Tensor target = left;
  if (overwritable(right_id)) {
    target = right;
  } else if (!overwritable(left_id)) {
    target = make(lists().bytes_of(left.buffer));
  }
  emit("sum of gradients", {left, right, target},
       [left, right, target, values = lists().bytes_of(left.buffer) / size_of(type()),
        type = type()](const LaunchContext& context) {
         add(context.stream(), type, context.at(left), context.at(right), context.at(target),
             values);
       });
  return target;
}

Step ProgramBuilder::exchange_step(std::string name, const Tensor& tensor,
                                   std::function<void(std::byte*)> run, bool in_last_micro_step) {
  return {.name = std::move(name),
          .run =
              [tensor, run = std::move(run)](const LaunchContext& context) {
                run(tensor.buffer < 0 ? nullptr : context.as<std::byte>(tensor));
              },
          .collective = true,
          .in_last_micro_step = in_last_micro_step};
}

Tensor ProgramBuilder::make_unit(std::size_t unit, UnitContent content) {
  const ParameterArena& arena = state_.arena;
  return make(content == UnitContent::parameters
                  ? arena.unit_bytes(unit)
                  : arena.layout().units[unit].size() * sizeof(float));
}

void ProgramBuilder::clear_gaps(std::size_t unit, const Tensor& gradients) {
  const std::size_t bytes = state_.arena.layout().units[unit].size() * sizeof(float);
  emit("clearing of a unit", {gradients}, [gradients, bytes](const LaunchContext& context) {
    context.device.clear(context.at(gradients), bytes);
  });
}

void ProgramBuilder::unit_arrived(std::size_t unit) {
  const Tensor values = gathered(unit);
  working_[unit] = values;
  const ArenaUnit& place = state_.arena.layout().units[unit];
  // Vectors with in_fp32 are used as they are.
  if (type() == DataType::f32 || state_.arena.is_16_bit(unit) || place.in_fp32) return;
  const Tensor working = make(place.size() * size_of(type()));
  emit("weights in the type of values", {values, working},
       [values, working, size = place.size(), type = type()](const LaunchContext& context) {
         convert(context.stream(), context.at(values), DataType::f32, context.at(working), type,
                 size);
       });
  working_[unit] = working;
}

Address ProgramBuilder::parameter(ParameterId id) {
  const ParameterArena& arena = state_.arena;
  if (arena.holds_parameters()) return {.fixed = arena.parameter(id), .tensor = {}};
  return {.tensor = gathered(arena.unit_of(id)), .offset = arena.bytes_into_unit(id)};
}

Address ProgramBuilder::working(ParameterId id) {
  const ParameterArena& arena = state_.arena;
  if (arena.holds_parameters()) return {.fixed = state_.working.of(arena, id), .tensor = {}};
  return {.tensor = working_[arena.unit_of(id)],
          .offset = arena.offset_in_unit(id) * size_of(type())};
}

std::optional<Address> ProgramBuilder::trained_gradient_of(ParameterId id,
                                                           std::vector<Tensor>& touched) {
  if (is_frozen(id)) return std::nullopt;
  const Address address = gradient_of(id);
  touched.push_back(address.tensor);
  return address;
}

Address ProgramBuilder::gradient_of(ParameterId id) {
  const ParameterArena& arena = state_.arena;
  if (arena.holds_gradients()) {
    return {.fixed = std::as_writable_bytes(std::span(arena.gradient(id), 1)).data(), .tensor = {}};
  }
  return {.tensor = unit_gradients(arena.unit_of(id)),
          .offset = arena.offset_in_unit(id) * sizeof(float)};
}

void ProgramBuilder::complete(ParameterId id) {
  const std::size_t end = state_.arena.filled_after(id);
  if (!unconverted_.empty()) {
    if (end < *std::ranges::upper_bound(group_ends_, written_)) return;
    convert_gradients();
  }
  written_ = std::max(written_, end);
}

void ProgramBuilder::convert_gradients() {
  struct Conversion {
    Tensor from;
    Address to;
    std::size_t count;
  };
  std::vector<Conversion> conversions;
  std::vector<Tensor> touched;
  for (const auto& [id, values] : unconverted_) {
    const Address place = gradient_of(id);
    conversions.push_back({.from = values, .to = place, .count = state_.arena.size_of(id)});
    touched.insert(touched.end(), {values, place.tensor});
  }
  unconverted_.clear();
  emit("weight gradients in fp32", touched,
       [conversions, placed = std::vector<GradientConversion>(conversions.size()),
        type = type()](const LaunchContext& context) mutable {
         std::ranges::transform(conversions, placed.begin(), [&](const Conversion& each) {
           return GradientConversion{.from = context.at(each.from),
                                     .to = context.as<float>(each.to),
                                     .count = each.count};
         });
         gpu::convert_gradients(context.stream(), type, placed, context.accumulate);
       });
}

ProgramBuilder::Program ProgramBuilder::take() {
  return {.forward = lists().take_forward(),
          .backward = lists().take_backward(),
          .plan = lists().plan()};
}

}  // namespace lockstep::gpu
