#pragma once

#include "admission.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "tree.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::watch {

struct JoinOptions {
  int fan_out = 64;            ///< of tree_parents()
  std::string interface = {};  ///< WatchdogOptions::interface
};
/// A rank's place in the tree, and the socket on which it listens.
struct JoinedTree {
  TreeOptions options;
  std::vector<int> deciders;         ///< deciders()
  std::optional<Listener> listener;  ///< nullopt: there is only one rank
};
/// Collective. The ranks agree on a secret and tell each other where they listen.
[[nodiscard]] JoinedTree join_tree(Communicator& comm, const ProcessGrid& grid,
                                   const JoinOptions& options);

}  // namespace lockstep::watch
