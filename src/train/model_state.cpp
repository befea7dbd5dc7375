#include "lockstep/train/model_state.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace lockstep {
namespace {

using TensorIndex = std::unordered_map<std::string, const NamedTensor*>;

TensorIndex index_of(const std::vector<NamedTensor>& tensors) {
  TensorIndex index;
  for (const NamedTensor& tensor : tensors) index.emplace(tensor.name, &tensor);
  return index;
}

/// The file's tensor of that name and shape.
const NamedTensor& find(const TensorIndex& index, const std::string& name, const Shape& shape,
                        const char* where) {
  const auto found = index.find(name);
  if (found == index.end()) {
    fail(ExitStatus::bad_input,
         "the checkpoint has no {}/{} ({} is expected there; it is another model's) give the "
         "--model "
         "it was written with",
         where, name, to_string(shape));
  }
  if (found->second->shape != shape) {
    fail(ExitStatus::bad_input,
         "{}/{} is {} in the checkpoint, but {} in the network (it is another model's or has other "
         "classes) give the --model it was written with; for new classes --init-from with "
         "--init-head new",
         where, name, to_string(found->second->shape), to_string(shape));
  }
  return *found->second;
}

std::size_t size_of(const Parameter& parameter) {
  return static_cast<std::size_t>(parameter.shape.elements());
}

/// "fc." of the network's last linear layer.
std::string head_prefix(const Graph& graph) {
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (const auto* linear = std::get_if<Linear>(&node->op)) return linear->options.name + ".";
  }
  return {};
}

template <typename T>
std::span<T> view_of(const Engine& engine, std::span<T> arena, std::size_t id) {
  return engine.layout().view_of(static_cast<ParameterId>(id)).in(arena);
}

std::vector<NamedTensor> named_tensors(const Engine& engine, std::span<const float> arena) {
  std::vector<NamedTensor> tensors;
  const auto parameters = engine.graph().parameters();
  for (std::size_t id = 0; id < parameters.size(); ++id) {
    NamedTensor tensor{.name = parameters[id].name,
                       .shape = parameters[id].shape,
                       .values = std::vector<float>(size_of(parameters[id]))};
    engine.to_plain(view_of(engine, arena, id), static_cast<ParameterId>(id), tensor.values);
    const bool finite = std::all_of(tensor.values.begin(), tensor.values.end(),
                                    [](float value) { return std::isfinite(value); });
    if (!finite) {
      fail(ExitStatus::diverged, "{} is not finite (training diverged) lower --lr", tensor.name);
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

/// Error(bad_input) where the file has a tensor that the network does not.
void require_known_tensors(const Checkpoint& checkpoint, const Graph& graph) {
  for (const NamedTensor& tensor : checkpoint.model) {
    const auto same_name = [&](const auto& known) { return known.name == tensor.name; };
    if (std::none_of(graph.parameters().begin(), graph.parameters().end(), same_name) &&
        std::none_of(graph.statistics().begin(), graph.statistics().end(), same_name) &&
        !tensor.name.ends_with("num_batches_tracked")) {
      fail(ExitStatus::bad_input,
           "the checkpoint's /model/{} ({}) is not in {} (it is another model's) give the --model "
           "it was written with",
           tensor.name, to_string(tensor.shape), graph.name());
    }
  }
}

}  // namespace

std::vector<float> initial_parameters(const Engine& engine, std::uint64_t seed) {
  const auto parameters = engine.graph().parameters();
  std::vector<float> arena(engine.layout().size());
  for (std::size_t id = 0; id < parameters.size(); ++id) {
    engine.from_plain(initial_values(parameters[id], seed), static_cast<ParameterId>(id),
                      view_of(engine, std::span(arena), id));
  }
  return arena;
}

void initialize_statistics(Engine& engine) {
  auto running = engine.running_statistics().begin();
  for (const RunningStatistic& statistic : engine.graph().statistics()) {
    running = std::fill_n(running, statistic.channels, statistic.initial_value);
  }
}

void initialize_model(Engine& engine, std::uint64_t seed) {
  engine.write(initial_parameters(engine, seed), engine.parameters());
  initialize_statistics(engine);
}

void load_parameters(const Checkpoint& checkpoint, InitHead head, const Engine& engine,
                     std::span<float> arena) {
  const Graph& graph = engine.graph();
  const TensorIndex index = index_of(checkpoint.model);
  const std::string kept = head == InitHead::fresh ? head_prefix(graph) : std::string();
  for (std::size_t id = 0; id < graph.parameters().size(); ++id) {
    const Parameter& parameter = graph.parameters()[id];
    if (!kept.empty() && parameter.name.starts_with(kept)) continue;
    const NamedTensor& tensor = find(index, parameter.name, parameter.shape, "/model");
    engine.from_plain(tensor.values, static_cast<ParameterId>(id), view_of(engine, arena, id));
  }
  const std::size_t expected = graph.parameters().size() + graph.statistics().size();
  if (index.size() > expected && head == InitHead::keep) require_known_tensors(checkpoint, graph);
}

void load_statistics(const Checkpoint& checkpoint, Engine& engine) {
  const TensorIndex index = index_of(checkpoint.model);
  auto running = engine.running_statistics().begin();
  for (const RunningStatistic& statistic : engine.graph().statistics()) {
    const NamedTensor& tensor = find(index, statistic.name, Shape{statistic.channels}, "/model");
    running = std::copy(tensor.values.begin(), tensor.values.end(), running);
  }
}

void load_model(const Checkpoint& checkpoint, InitHead head, Engine& engine) {
  std::vector<float> arena(engine.layout().size());
  engine.read(engine.parameters(), arena);
  load_parameters(checkpoint, head, engine, arena);
  engine.write(arena, engine.parameters());
  load_statistics(checkpoint, engine);
}

void load_slot(const Checkpoint& checkpoint, const Engine& engine, const Optimizer& optimizer,
               const std::string& slot, std::span<float> arena) {
  const auto tensors = checkpoint.optimizer.find(slot);
  if (tensors == checkpoint.optimizer.end()) {
    fail(ExitStatus::bad_input,
         "the checkpoint has no /optimizer/{} (it was not written by {}) use --init-from to take "
         "the weights alone",
         slot, optimizer.name());
  }
  const TensorIndex index = index_of(tensors->second);
  const auto parameters = engine.graph().parameters();
  for (std::size_t id = 0; id < parameters.size(); ++id) {
    const NamedTensor& tensor =
        find(index, parameters[id].name, parameters[id].shape, "/optimizer");
    engine.from_plain(tensor.values, static_cast<ParameterId>(id), view_of(engine, arena, id));
  }
}

StateSnapshot::StateSnapshot(Engine& engine, Optimizer& optimizer, bool keeps)
    : parameters_(keeps ? engine.layout().size() : 0),
      statistics_(engine.running_statistics().size()),
      slot_names_(optimizer.slot_names().begin(), optimizer.slot_names().end()) {
  for (std::size_t i = 0; i < slot_names_.size(); ++i) slots_.emplace_back(parameters_.size());
}

void StateSnapshot::copy_from(Engine& engine, ParallelState& state, Optimizer& optimizer) {
  state.collect_parameters(parameters_.span());
  std::ranges::copy(engine.running_statistics(), statistics_.begin());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    state.collect(optimizer.slot(i), slots_[i].span());
  }
}

Checkpoint StateSnapshot::to_checkpoint(const Engine& engine) const {
  Checkpoint checkpoint;
  checkpoint.model = named_tensors(engine, parameters_.span());
  auto running = statistics_.begin();
  for (const RunningStatistic& statistic : engine.graph().statistics()) {
    const auto end = running + statistic.channels;
    checkpoint.model.push_back(
        {.name = statistic.name, .shape = Shape{statistic.channels}, .values = {running, end}});
    running = end;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    checkpoint.optimizer.emplace(slot_names_[i], named_tensors(engine, slots_[i].span()));
  }
  return checkpoint;
}

}  // namespace lockstep
