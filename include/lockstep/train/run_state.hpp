#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class CheckpointDirectory;

/// Where a run begins: on rank 0 with the open file, elsewhere with the state alone.
struct RunStart {
  std::optional<TrainingState> state;      ///< empty: from the beginning
  std::string path;                        ///< the checkpoint it goes on from
  std::vector<std::string> rejected;       ///< newer files that did not verify
  std::optional<CheckpointReader> reader;  ///< rank 0's; empty: initial values
};

/// Finds what --resume asks for. Collective, with a barrier on either side of the load: rank 0
/// reads and broadcasts its status and the state. Error(usage): --resume none over checkpoints;
/// Error(bad_input): none verifies.
[[nodiscard]] RunStart find_run_start(const Config& config, CheckpointDirectory* directory,
                                      Communicator& comm);

/// Rank 0's parameters and running statistics on every rank, whose engines hold them all.
void broadcast_model(Engine& engine, Communicator& comm);

/// The network's initial values, or the checkpoint's, on every rank's part of them; collective, of
/// rank 0's file. Error(bad_input) on all ranks where it is another network's.
void start_model(const RunStart& start, const Config& config, Engine& engine, ParallelState& state,
                 Optimizer& optimizer, Communicator& comm);

/// Where every parameter lies, as text: equal for equal layouts.
[[nodiscard]] std::string layout_text(const Engine& engine);

/// Error(usage) naming the ranks where `text` differs from rank 0's; collective. `what` says what
/// was compared, `why` how it comes about.
void require_agreement(Communicator& comm, const std::string& text, const std::string& what,
                       const std::string& why);

}  // namespace lockstep
