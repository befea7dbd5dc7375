#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/optimizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Initial parameters and running statistics of a network: a pure function of the seed.
void initialize_model(Engine& engine, std::uint64_t seed);

/// From a checkpoint's `/model`. Error(bad_input) with the first differing names and shapes. With
/// InitHead::fresh the last linear layer keeps the values it has.
void load_model(const Checkpoint& checkpoint, InitHead head, Engine& engine);
/// From a checkpoint's `/optimizer`. Error(bad_input) where a slot or tensor is missing.
void load_optimizer(const Checkpoint& checkpoint, Engine& engine, Optimizer& optimizer);

/// A copy of parameters, optimizer slots and running statistics, made at a step's boundary into
/// memory that was set aside at the start.
class StateSnapshot final {
 public:
  StateSnapshot(Engine& engine, Optimizer& optimizer);
  void copy_from(Engine& engine, Optimizer& optimizer);
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
