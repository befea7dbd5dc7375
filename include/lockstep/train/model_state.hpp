#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Arenas are of Engine::layout().size() values, in host memory.

/// Initial parameters of a network: a pure function of the seed.
[[nodiscard]] std::vector<float> initial_parameters(const Engine& engine, std::uint64_t seed);
void initialize_statistics(Engine& engine);
/// Both, in an engine that holds its parameters.
void initialize_model(Engine& engine, std::uint64_t seed);

/// From a checkpoint's `/model`. Error(bad_input) with the first differing names and shapes. With
/// InitHead::fresh the last linear layer keeps the values it has.
void load_parameters(const Checkpoint& checkpoint, InitHead head, const Engine& engine,
                     std::span<float> arena);
void load_statistics(const Checkpoint& checkpoint, Engine& engine);
/// Both, into an engine that holds its parameters.
void load_model(const Checkpoint& checkpoint, InitHead head, Engine& engine);
/// From a checkpoint's `/optimizer`. Error(bad_input) where the slot or a tensor is missing.
void load_slot(const Checkpoint& checkpoint, const Engine& engine, const Optimizer& optimizer,
               const std::string& slot, std::span<float> arena);

/// Rank 0's copy of parameters, optimizer slots and running statistics, made at a step's boundary
/// into memory that was set aside at the start.
class StateSnapshot final {
 public:
  /// `keeps`: on rank 0, and false elsewhere.
  StateSnapshot(Engine& engine, Optimizer& optimizer, bool keeps);
  /// Collective where ranks share the state out.
  void copy_from(Engine& engine, ParallelState& state, Optimizer& optimizer);
  /// The copy as a checkpoint's `/model` and `/optimizer`, in plain layouts. Error(diverged) where
  /// a value is not finite. May run on another thread while training goes on.
  [[nodiscard]] Checkpoint to_checkpoint(const Engine& engine) const;

 private:
  AlignedBuffer<float> parameters_;
  std::vector<float> statistics_;
  std::vector<std::string> slot_names_;
  std::vector<AlignedBuffer<float>> slots_;
};

}  // namespace lockstep
