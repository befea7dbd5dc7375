#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/engine/arena.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Engine;

/// Values of one tensor of a network's parameters or of an optimizer slot, in the plain layout.
using TensorValues = std::function<std::vector<float>(ParameterId)>;

/// A pure function of the seed.
[[nodiscard]] TensorValues initial_values(const Graph& graph, std::uint64_t seed);
/// Which model of a file: `/model`, or its moving average, `/ema`.
enum class StoredModel { current, ema };
/// "current" or "ema".
[[nodiscard]] const char* to_string(StoredModel model) noexcept;
/// The model that readers of weights take from a file: what `ema` says, else the average if there
/// is one, by which the run chose its best checkpoint.
[[nodiscard]] StoredModel chosen_model(const CheckpointReader& reader, std::optional<bool> ema);
/// Which of two models was taken, and the option of eval and export that takes the other; empty:
/// the file has no average.
[[nodiscard]] std::string chosen_model_text(const CheckpointReader& reader, StoredModel chosen);
struct StoredParameters {
  StoredModel from = StoredModel::current;
  InitHead head = InitHead::keep;             ///< of the last linear layer
  bool partial = false;                       ///< take what fits
  TensorValues otherwise = {};                ///< values of what is not taken from the file
  std::vector<std::string>* notes = nullptr;  ///< receives what was not taken as it is
};
/// Parameters of a model in a file; `reader` outlives the result. Embeddings of positions of
/// another image size are interpolated (resize_positions()). Error(bad_input), before reading any
/// values, with all differing names and shapes unless `partial`, or if the file has no average.
[[nodiscard]] TensorValues stored_parameters(const CheckpointReader& reader, const Graph& graph,
                                             const StoredParameters& options = {});
/// Running statistics of a model in a file, by StatisticId; with `partial`, initial values of what
/// does not fit. Error(bad_input) as above.
[[nodiscard]] std::vector<std::vector<float>> stored_statistics(
    const CheckpointReader& reader, const Graph& graph, StoredModel from = StoredModel::current,
    bool partial = false);
/// A slot in a file's `/optimizer`. Error(bad_input) if the slot or a tensor is missing.
[[nodiscard]] TensorValues stored_slot(const CheckpointReader& reader, const Graph& graph,
                                       std::string_view optimizer, const std::string& slot);

/// Fills `target` with `run`, a range of whole views of the engine's layout, in its tensor layouts.
void fill(const Engine& engine, const ArenaUnit& run, const TensorValues& values,
          std::span<float> target);
/// Initial values of all parameters: Engine::layout().size() values.
[[nodiscard]] std::vector<float> initial_parameters(const Engine& engine, std::uint64_t seed);

void initialize_statistics(Engine& engine);
/// `running`: Engine::running_statistics(), or values in the same order. Throws Error(bad_input) as
/// stored_parameters() does.
void load_statistics(const CheckpointReader& reader, const Graph& graph, StoredModel from,
                     std::span<float> running, bool partial = false);

// Parameters and statistics together, for an engine that holds its parameters.
void initialize_model(Engine& engine, std::uint64_t seed);
void load_model(const CheckpointReader& reader, Engine& engine,
                StoredModel from = StoredModel::current, std::vector<std::string>* notes = nullptr);

}  // namespace lockstep
