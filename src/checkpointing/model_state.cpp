#include "lockstep/checkpointing/model_state.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "match_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

TensorValues values_of(const CheckpointReader& reader, std::string group,
                       std::vector<TensorPlace> places, TensorValues otherwise = {}) {
  return [&reader, group = std::move(group), places = std::move(places),
          otherwise = std::move(otherwise)](ParameterId id) {
    const TensorPlace& place = places[static_cast<std::size_t>(id)];
    if (place.tensor == nullptr) return otherwise(id);
    std::vector<float> values = reader.read(group, *place.tensor);
    if (!place.grids) return values;
    return resize_positions(values, place.grids->from, place.grids->to);
  };
}

const char* group_of(StoredModel from) {
  return from == StoredModel::ema ? ema_group : model_group;
}

const StoredTensors& tensors_of(const CheckpointReader& reader, StoredModel from) {
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
                               const StoredParameters& options) {
  const MatchedFile file{.reader = reader,
                         .tensors = tensors_of(reader, options.from),
                         .group = group_of(options.from)};
  return values_of(reader, file.group, match_parameters(file, graph, options), options.otherwise);
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
  std::vector<TensorPlace> places;
  for (const Parameter& parameter : graph.parameters()) {
    places.push_back({.tensor = &find(index, parameter.name, parameter.shape, "/optimizer")});
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
                                                  const Graph& graph, StoredModel from,
                                                  bool partial) {
  const char* const group = group_of(from);
  const TensorIndex index = index_of(tensors_of(reader, from));
  std::vector<std::vector<float>> all;
  all.reserve(graph.statistics().size());
  for (const RunningStatistic& statistic : graph.statistics()) {
    const Shape shape{statistic.channels};
    const auto found = index.find(statistic.name);
    if (partial && (found == index.end() || found->second->shape != shape)) {
      all.emplace_back(static_cast<std::size_t>(statistic.channels), statistic.initial_value);
      continue;
    }
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
                     std::span<float> running, bool partial) {
  auto next = running.begin();
  for (const auto& values : stored_statistics(reader, graph, from, partial)) {
    next = std::ranges::copy(values, next).out;
  }
}

void initialize_model(Engine& engine, std::uint64_t seed) {
  engine.memory().write(initial_parameters(engine, seed), engine.parameters());
  initialize_statistics(engine);
}

void load_model(const CheckpointReader& reader, Engine& engine, StoredModel from,
                std::vector<std::string>* notes) {
  std::vector<float> arena(engine.layout().size());
  fill(engine, {.begin = 0, .end = arena.size()},
       stored_parameters(reader, engine.graph(), {.from = from, .notes = notes}), arena);
  engine.memory().write(arena, engine.parameters());
  load_statistics(reader, engine.graph(), from, engine.running_statistics());
}

}  // namespace lockstep
