#include "program_builder.hpp"

#include <algorithm>
#include <cassert>

namespace lockstep::cuda {
namespace {

std::size_t at(int id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

ProgramBuilder::ProgramBuilder(EngineState& state, StatisticsBlock& statistics,
                               const ProgramOptions& options)
    : state_(state),
      statistics_(statistics),
      options_(options),
      values_(state.graph.nodes().size()),
      gradients_(state.graph.nodes().size()),
      units_(state.arena.layout().units) {}

Extent ProgramBuilder::extent(ValueId id) const {
  const Shape& shape = state_.graph.nodes()[at(id)].output;
  Extent extent{.batch = options_.batch_size,
                .channels = shape[0],
                .padded = padded_channels(shape[0], type())};
  if (shape.rank() == 3) {
    extent.height = shape[1];
    extent.width = shape[2];
  }
  return extent;
}

Tensor ProgramBuilder::make(std::size_t bytes) {
  const int buffer = static_cast<int>(requests_.size());
  requests_.push_back({.bytes = bytes, .first_step = position_, .last_step = position_});
  return {.buffer = buffer};
}

Tensor ProgramBuilder::make_like(ValueId id) {
  return make(extent(id).values() * size_of(type()));
}

Tensor ProgramBuilder::value(ValueId id) const {
  assert(values_[at(id)].has_value());
  return *values_[at(id)];
}

void ProgramBuilder::set_value(ValueId id, Tensor tensor) {
  values_[at(id)] = tensor;
}

bool ProgramBuilder::overwritable(ValueId id) const {
  const GraphAnalysis& analysis = state_.analysis;
  return (training() ? analysis.overwritable : analysis.overwritable_in_inference)[at(id)];
}

bool ProgramBuilder::needs_gradient(ValueId id) const {
  return state_.analysis.needs_gradient[at(id)];
}

Tensor ProgramBuilder::gradient(ValueId id) {
  add_up(id);
  assert(gradients_[at(id)].sum.has_value());
  return gradients_[at(id)].sum->tensor;
}

bool ProgramBuilder::gradient_is_exclusive(ValueId id) const {
  assert(!gradients_[at(id)].last);
  return gradients_[at(id)].sum->ownership == Ownership::exclusive;
}

ProgramBuilder::Addends ProgramBuilder::take_gradient(ValueId id) {
  GradientOf& of = gradients_[at(id)];
  assert(of.sum.has_value());
  if (!of.last) return {.first = of.sum->tensor, .second = std::nullopt, .sum = of.sum->tensor};
  const Addends addends{.first = of.sum->tensor, .second = of.last->tensor, .sum = sum_of(id)};
  of = {.sum = Contribution{addends.sum, Ownership::exclusive}, .last = std::nullopt};
  return addends;
}

Tensor ProgramBuilder::sum_of(ValueId id) {
  const GradientOf& of = gradients_[at(id)];
  if (of.last->ownership == Ownership::exclusive) return of.last->tensor;
  if (of.sum->ownership == Ownership::exclusive) return of.sum->tensor;
  return make_like(id);
}

void ProgramBuilder::contribute(ValueId id, Tensor tensor, Ownership ownership) {
  if (!needs_gradient(id)) return;
  add_up(id);
  GradientOf& of = gradients_[at(id)];
  (of.sum ? of.last : of.sum) = {.tensor = tensor, .ownership = ownership};
}

void ProgramBuilder::add_up(ValueId id) {
  if (!gradients_[at(id)].last) return;
  const auto [left, right, sum] = take_gradient(id);
  emit("sum of gradients", {left, *right, sum},
       [left = left, right = *right, sum = sum, values = extent(id).values(), type = type()](
           const Frame& f) { add(f.stream(), type, f.at(left), f.at(right), f.at(sum), values); });
}

void ProgramBuilder::touch(Tensor tensor) {
  if (tensor.buffer < 0) return;  // in an arena
  BufferRequest& request = requests_[at(tensor.buffer)];
  request.first_step = std::min(request.first_step, position_);
  request.last_step = std::max(request.last_step, position_);
}

void ProgramBuilder::list(Step step) {
  step.filled = filled_;
  steps().push_back(std::move(step));
  ++position_;
}

void ProgramBuilder::emit(std::string name, const std::vector<Tensor>& touched,
                          std::function<void(const Frame&)> run,
                          const std::vector<ParameterId>& final) {
  for (const Tensor& tensor : touched) touch(tensor);
  for (const ParameterId id : final) filled_ = std::max(filled_, state_.arena.filled_after(id));
  list({.name = std::move(name), .run = std::move(run)});
  if (!final.empty()) reduce_filled_units();
}

ProgramBuilder::Lists ProgramBuilder::take() {
  lists_.plan = plan_memory(requests_);
  return std::move(lists_);
}

}  // namespace lockstep::cuda
