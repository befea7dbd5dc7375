#pragma once

#include "lockstep/comm/communicator.hpp"

#include <utility>
#include <vector>

namespace lockstep {

/// Keeps memory until the process ends. Once a rank has failed, a started collective can neither be
/// cancelled nor complete, and any later MPI call may still write to its buffers.
inline void keep_until_exit(MemoryOwner owner) {
  // Never destroyed, but reachable, so that leak detectors do not report it.
  static auto& kept = *new std::vector<MemoryOwner>;
  if (owner != nullptr) kept.push_back(std::move(owner));
}

}  // namespace lockstep
