#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/engine/engine.hpp"

#include <memory>
#include <span>

namespace lockstep {

// Registers with a communicator the memory that collectives use in every step.

/// One of the engine's arenas, which has the same size on all ranks.
template <typename T>
void register_arena(Communicator& comm, const Engine& engine, std::span<T> arena) {
  comm.register_memory(
      {.bytes = std::as_writable_bytes(arena), .owner = engine.arena(), .symmetric = true});
}
/// An ArenaMemory or CastBuffer; may be null.
template <typename Memory>
void register_values(Communicator& comm, const std::shared_ptr<Memory>& memory) {
  if (memory == nullptr) return;
  comm.register_memory({.bytes = std::as_writable_bytes(memory->values()), .owner = memory});
}

}  // namespace lockstep
