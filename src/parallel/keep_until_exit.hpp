#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

/// Keeps memory until the process ends. A collective that was started can be neither cancelled nor
/// completed once a rank has failed, and any later call of MPI may still write to its buffers.
inline void keep_until_exit(std::shared_ptr<const void> owner) {
  // Never destroyed, and reachable, so that leak detectors know it.
  static auto& kept = *new std::vector<std::shared_ptr<const void>>;
  if (owner != nullptr) kept.push_back(std::move(owner));
}

}  // namespace lockstep
