#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/engine/engine.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Plain values of a network's parameters, or of an optimizer's slot, one tensor at a time.
using TensorValues = std::function<std::vector<float>(ParameterId)>;

/// A pure function of the seed.
[[nodiscard]] TensorValues initial_values(const Graph& graph, std::uint64_t seed);
/// From a file's `/model`; `reader` outlives it. With InitHead::fresh the last linear layer's are
/// those of `otherwise`. Error(bad_input) with the first differing names and shapes, before
/// anything is read.
[[nodiscard]] TensorValues stored_parameters(const CheckpointReader& reader, const Graph& graph,
                                             InitHead head = InitHead::keep,
                                             TensorValues otherwise = {});
/// From a file's `/optimizer`. Error(bad_input) where the slot or a tensor is missing.
[[nodiscard]] TensorValues stored_slot(const CheckpointReader& reader, const Graph& graph,
                                       std::string_view optimizer, const std::string& slot);

/// A run of the engine's layout, of whole views, in its own layouts.
void fill(const Engine& engine, const ArenaUnit& run, const TensorValues& values,
          std::span<float> target);
/// All parameters: Engine::layout().size() values.
[[nodiscard]] std::vector<float> initial_parameters(const Engine& engine, std::uint64_t seed);

void initialize_statistics(Engine& engine);
/// Error(bad_input) as stored_parameters().
void load_statistics(const CheckpointReader& reader, Engine& engine);

// Both, in an engine that holds its parameters.
void initialize_model(Engine& engine, std::uint64_t seed);
void load_model(const CheckpointReader& reader, Engine& engine);

}  // namespace lockstep
