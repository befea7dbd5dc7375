#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/blank_batch.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace lockstep {

/// Means over exactly the samples of a split; top1 and top5 as fractions.
struct EvaluationResult {
  std::int64_t samples = 0;
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
  double seconds = 0;
};

struct EvaluatorOptions {
  LoaderOptions loader;  ///< augment, shuffle and batch_capacity are set by the evaluator
  std::int64_t batch_size = 64;
  PhaseBoard* board = nullptr;  ///< told of each batch; null: nobody looks
  TraceRow* trace = nullptr;    ///< has each batch as an event; null: it is not traced
  /// As TrainStepOptions::meets_in_programs: every rank runs as many batches.
  bool meets_in_programs = false;
};

/// Runs a split through the network: every sample exactly once whatever the world size.
class Evaluator final {
 public:
  /// `engine`, `dataset` and `comm` outlive the evaluator.
  Evaluator(Engine& engine, const Dataset& dataset, Communicator& comm, EvaluatorOptions options);

  /// Collective. `stop_wanted` is asked every few batches; where it is true on any rank, evaluation
  /// is given up on all, and there is no result.
  [[nodiscard]] std::optional<EvaluationResult> run(const std::function<bool()>& stop_wanted = {});

 private:
  const Dataset& dataset_;
  Communicator& comm_;
  EvaluatorOptions options_;
  std::unique_ptr<Program> program_;
  BlankBatch blank_;
};

}  // namespace lockstep
