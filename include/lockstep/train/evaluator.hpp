#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_memory.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/engine/program.hpp"
#include "lockstep/run/evaluation_result.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/blank_batch.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

class Engine;

/// Consecutive samples of a split, and the network's output for them.
struct EvaluatedSamples {
  std::int64_t first = 0;                ///< index in the split
  std::span<const std::int32_t> labels;  ///< (N,)
  std::span<const float> logits;         ///< (N, classes)
};

struct EvaluatorOptions {
  /// The evaluator sets augment, random_erasing, mix, shuffle and batch_capacity.
  LoaderOptions loader;
  std::int64_t batch_size = 64;
  PhaseBoard* board = nullptr;                        ///< notified of each batch; null: none
  std::function<void(const std::string&)> warn = {};  ///< as TrainStepOptions::warn
  TraceRow* trace = nullptr;  ///< gets an event for each batch; null: no trace
  /// As TrainStepOptions::has_collectives: all ranks run the same number of batches.
  bool has_collectives = false;
  UnitExchange* exchange = nullptr;  ///< as ProgramOptions::exchange
  const Graph* graph = nullptr;      ///< as ProgramOptions::graph
  /// Receives every sample once on rank 0, in pieces and in any order; empty, on all ranks: none.
  std::function<void(const EvaluatedSamples&)> on_samples = {};
};

/// Evaluates the network on a split: every sample exactly once at any world size.
class Evaluator final {
 public:
  /// `engine`, `dataset` and `comm` outlive the evaluator. Error(usage), on all ranks, as
  /// check_loader_options().
  Evaluator(Engine& engine, const Dataset& dataset, Communicator& comm, EvaluatorOptions options);

  /// Collective. Calls `stop_wanted` every few batches; if it is true on any rank, or if a rank's
  /// data do not come after a signal, all ranks abandon the evaluation and return nullopt.
  [[nodiscard]] std::optional<EvaluationResult> run(const std::function<bool()>& stop_wanted = {});

 private:
  /// The loader's next batch; its copy to a device has begun.
  [[nodiscard]] std::optional<LoadedBatch> load_next(Loader& loader);
  /// Computes `batch`, or a blank one if there is none and other ranks need this one, and meanwhile
  /// loads the next into `batch`. `labels` receives those of the computed one.
  [[nodiscard]] BatchMetrics compute(Loader& loader, std::optional<LoadedBatch>& batch,
                                     std::optional<Error>& error,
                                     std::vector<std::int32_t>& labels);

  Engine& engine_;
  const Dataset& dataset_;
  Communicator& comm_;
  EvaluatorOptions options_;
  std::int64_t classes_;
  std::optional<ReusedHostMemory> memory_;  ///< of the loaders, if the engine has its own
  std::unique_ptr<Program> program_;
  BlankBatch blank_;
};

}  // namespace lockstep
