#include "lockstep/checkpointing/model_state.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace lockstep {
namespace {

using Tensors = std::vector<CheckpointReader::Tensor>;
using TensorIndex = std::unordered_map<std::string, const CheckpointReader::Tensor*>;

TensorIndex index_of(const Tensors& tensors) {
  TensorIndex index;
  for (const auto& tensor : tensors) index.emplace(tensor.name, &tensor);
  return index;
}

/// Error(bad_input) if the file has the tensor under a name that a wrapper has extended, as
/// PyTorch's DataParallel ("module.") and torch.compile ("_orig_mod.") do.
void refuse_prefix(const TensorIndex& index, const std::string& name, std::string_view where) {
  const std::string* stored = nullptr;  // the shortest: layer1.0.conv1.weight ends in a name, too
  for (const auto& [other, tensor] : index) {
    if (!other.ends_with("." + name)) continue;
    if (stored == nullptr || other.size() < stored->size()) stored = &other;
  }
  if (stored == nullptr) return;
  const std::string prefix = stored->substr(0, stored->size() - name.size());
  fail(ExitStatus::bad_input,
       "the checkpoint has {}/{} under the name {} (a module around the network was saved, such as "
       "PyTorch's DataParallel); write the names without {}: python3 -c \"import h5py, sys; g = "
       "h5py.File(sys.argv[1], 'a')['{}']; [g.move(n, n[{}:]) for n in list(g) if "
       "n.startswith('{}')]\" FILE",
       where, name, *stored, prefix, where, prefix.size(), prefix);
}

/// The file's tensor with this name and shape.
const CheckpointReader::Tensor& find(const TensorIndex& index, const std::string& name,
                                     const Shape& shape, std::string_view where) {
  const auto found = index.find(name);
  if (found == index.end()) {
    refuse_prefix(index, name, where);
    fail(ExitStatus::bad_input,
         "the checkpoint has no {}/{} ({} is expected there; it is another model's); give the "
         "--model "
         "it was written with",
         where, name, to_string(shape));
  }
  if (found->second->shape != shape) {
    fail(ExitStatus::bad_input,
         "{}/{} is {} in the checkpoint, but {} in the network (it is another model's or has other "
         "classes); give the --model, --width and --stem it was written with; for new classes "
         "--init-from with --init-head new",
         where, name, to_string(found->second->shape), to_string(shape));
  }
  return *found->second;
}

/// Parameters of the network's last linear layer.
std::span<const ParameterId> head_of(const Graph& graph) {
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (std::holds_alternative<Linear>(node->op)) return node->parameters;
  }
  return {};
}

/// Error(bad_input) if the file has a tensor that the network does not have.
void require_known_tensors(const Tensors& tensors, std::string_view group, const Graph& graph) {
  for (const auto& tensor : tensors) {
    const auto same_name = [&](const auto& known) { return known.name == tensor.name; };
    if (std::none_of(graph.parameters().begin(), graph.parameters().end(), same_name) &&
        std::none_of(graph.statistics().begin(), graph.statistics().end(), same_name)) {
      fail(ExitStatus::bad_input,
           "the checkpoint's {}/{} ({}) is not in {} (it is another model's); give the --model "
           "it was written with",
           group, tensor.name, to_string(tensor.shape), graph.name());
    }
  }
}

/// For each parameter, its tensor in the file; null: not from the file.
using Places = std::vector<const CheckpointReader::Tensor*>;

TensorValues values_of(const CheckpointReader& reader, std::string group, Places places,
                       TensorValues otherwise = {}) {
  return [&reader, group = std::move(group), places = std::move(places),
          otherwise = std::move(otherwise)](ParameterId id) {
    const auto* place = places[static_cast<std::size_t>(id)];
    return place == nullptr ? otherwise(id) : reader.read(group, *place);
  };
}

const char* group_of(StoredModel from) {
  return from == StoredModel::ema ? ema_group : model_group;
}

const Tensors& tensors_of(const CheckpointReader& reader, StoredModel from) {
  if (from == StoredModel::current) return reader.model();
  if (reader.ema().empty()) {
    fail(ExitStatus::bad_input,
         "the checkpoint has no {} (its run kept no average of the weights); drop --ema, or train "
         "with --ema-decay",
         ema_group);
  }
  return reader.ema();
}

}  // namespace

const char* to_string(StoredModel model) noexcept {
  return model == StoredModel::ema ? "ema" : "current";
}

StoredModel chosen_model(const CheckpointReader& reader, std::optional<bool> ema) {
  return ema.value_or(!reader.ema().empty()) ? StoredModel::ema : StoredModel::current;
}

std::string chosen_model_text(const CheckpointReader& reader, StoredModel chosen) {
  if (reader.ema().empty()) return {};
  if (chosen == StoredModel::current) return "those of the last step; --ema takes their average";
  const std::optional<TrainingState>& state = reader.info().state;
  return fmt::format("their average{}; --no-ema takes those of the last step",
                     state && state->step == state->best_step
                         ? ", by which this checkpoint was the best so far"
                         : "");
}

TensorValues initial_values(const Graph& graph, std::uint64_t seed) {
  return [&graph, seed](ParameterId id) {
    return initial_values(graph.parameters()[static_cast<std::size_t>(id)], seed);
  };
}

TensorValues stored_parameters(const CheckpointReader& reader, const Graph& graph,
                               StoredParameters options) {
  const char* const group = group_of(options.from);
  const Tensors& tensors = tensors_of(reader, options.from);
  const TensorIndex index = index_of(tensors);
  const std::span fresh =
      options.head == InitHead::fresh ? head_of(graph) : std::span<const ParameterId>();
  Places places;
  places.reserve(graph.parameters().size());
  for (const Parameter& parameter : graph.parameters()) {
    const auto id = static_cast<ParameterId>(places.size());
    const bool is_fresh = std::ranges::find(fresh, id) != fresh.end();
    places.push_back(is_fresh ? nullptr : &find(index, parameter.name, parameter.shape, group));
  }
  if (options.head == InitHead::keep) require_known_tensors(tensors, group, graph);
  return values_of(reader, group, std::move(places), std::move(options.otherwise));
}

TensorValues stored_slot(const CheckpointReader& reader, const Graph& graph,
                         std::string_view optimizer, const std::string& slot) {
  const auto tensors = reader.optimizer().find(slot);
  if (tensors == reader.optimizer().end()) {
    fail(ExitStatus::bad_input,
         "the checkpoint has no /optimizer/{} (it was not written by {}); use --init-from to take "
         "the weights alone",
         slot, optimizer);
  }
  const TensorIndex index = index_of(tensors->second);
  Places places;
  for (const Parameter& parameter : graph.parameters()) {
    places.push_back(&find(index, parameter.name, parameter.shape, "/optimizer"));
  }
  return values_of(reader, slot_group(slot), std::move(places));
}

void fill(const Engine& engine, const ArenaUnit& run, const TensorValues& values,
          std::span<float> target) {
  std::ranges::fill(target, 0.0F);
  for (const ArenaView& view : engine.layout().views) {
    if (view.offset < run.begin || view.offset >= run.end) continue;
    engine.from_plain(values(view.parameter), view.parameter,
                      target.subspan(view.offset - run.begin, view.size));
  }
}

std::vector<float> initial_parameters(const Engine& engine, std::uint64_t seed) {
  std::vector<float> arena(engine.layout().size());
  fill(engine, {.begin = 0, .end = arena.size()}, initial_values(engine.graph(), seed), arena);
  return arena;
}

void initialize_statistics(Engine& engine) {
  auto running = engine.running_statistics().begin();
  for (const RunningStatistic& statistic : engine.graph().statistics()) {
    running = std::fill_n(running, statistic.channels, statistic.initial_value);
  }
}

std::vector<std::vector<float>> stored_statistics(const CheckpointReader& reader,
                                                  const Graph& graph, StoredModel from) {
  const char* const group = group_of(from);
  const TensorIndex index = index_of(tensors_of(reader, from));
  std::vector<std::vector<float>> all;
  all.reserve(graph.statistics().size());
  for (const RunningStatistic& statistic : graph.statistics()) {
    const Shape shape{statistic.channels};
    all.push_back(reader.read(group, find(index, statistic.name, shape, group)));
  }
  for (const Node& node : graph.nodes()) {
    if (node.statistics.empty()) continue;
    const auto variance = static_cast<std::size_t>(node.statistics[1]);
    const auto& values = all[variance];
    const auto negative = std::ranges::find_if(values, [](float value) { return value < 0; });
    if (negative == values.end()) continue;
    fail(
        ExitStatus::bad_input,
        "{}/{} has the value {} (a variance is not negative; outputs would be NaN); write the file "
        "again",
        group, graph.statistics()[variance].name, *negative);
  }
  return all;
}

void load_statistics(const CheckpointReader& reader, const Graph& graph, StoredModel from,
                     std::span<float> running) {
  auto next = running.begin();
  for (const auto& values : stored_statistics(reader, graph, from)) {
    next = std::ranges::copy(values, next).out;
  }
}

void initialize_model(Engine& engine, std::uint64_t seed) {
  engine.memory().write(initial_parameters(engine, seed), engine.parameters());
  initialize_statistics(engine);
}

void load_model(const CheckpointReader& reader, Engine& engine, StoredModel from) {
  std::vector<float> arena(engine.layout().size());
  fill(engine, {.begin = 0, .end = arena.size()},
       stored_parameters(reader, engine.graph(), {.from = from}), arena);
  engine.memory().write(arena, engine.parameters());
  load_statistics(reader, engine.graph(), from, engine.running_statistics());
}

}  // namespace lockstep
