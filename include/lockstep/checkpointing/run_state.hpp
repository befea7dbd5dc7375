#pragma once

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/parallel/model_average.hpp"
#include "lockstep/parallel/state_transfer.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Engine;

class CheckpointDirectory;

/// Where a run starts; only rank 0 has the open file.
struct RunStart {
  std::optional<TrainingState> state;      ///< empty: a fresh run
  std::string path;                        ///< the checkpoint to resume from
  std::vector<std::string> rejected;       ///< newer files that did not verify
  std::optional<CheckpointReader> reader;  ///< rank 0's; empty: initial values
};

/// Finds the checkpoint for --resume. Collective, with a barrier before and after the load: rank 0
/// reads and broadcasts its status and the state. Error(usage): --resume none in a directory with
/// checkpoints; Error(bad_input): none verifies.
[[nodiscard]] RunStart find_run_start(const Config& config, CheckpointDirectory* directory,
                                      Communicator& comm);

/// Broadcasts rank 0's parameters and running statistics, for engines that hold all of them.
void broadcast_model(Engine& engine, Communicator& comm);

/// Sets each rank's parameters and optimizer slots to initial values or to those in rank 0's
/// checkpoint; a new run takes the average from its file if there is one. The run's average (null:
/// none) starts as the parameters if the checkpoint has none. Returns, on rank 0, what was not
/// taken from the file as it is. Collective. Error(bad_input) on all ranks if the file is of
/// another network.
std::vector<std::string> start_model(const RunStart& start, const Config& config, Engine& engine,
                                     StateTransfer& transfer, Optimizer& optimizer,
                                     Communicator& comm, ModelAverage* average);

/// The location of every parameter, as text: equal for equal layouts.
[[nodiscard]] std::string layout_text(const Engine& engine);

/// Error(usage) naming the ranks whose `text` differs from rank 0's. Collective. For the message,
/// `what` names the compared thing and `why` a possible cause.
void require_agreement(Communicator& comm, const std::string& text, const std::string& what,
                       const std::string& why);

}  // namespace lockstep
