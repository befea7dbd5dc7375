#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/train/evaluator.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Brings the logits of an evaluation to rank 0, a round of batches at a time and in pieces, so
/// that memory does not grow with the split and hardly with the number of ranks.
class SampleGatherer final {
 public:
  struct Options {
    std::int64_t samples = 0;     ///< of the split
    std::int64_t batch_size = 0;  ///< as for plan_evaluation_batches()
    std::int64_t classes = 0;
    std::int64_t piece_bytes = std::int64_t{16} << 20;  ///< of a collective, at least a row a rank
  };
  SampleGatherer(Communicator& comm, const Options& options);

  /// Collective, once for each round of batches, in order of the rounds. `labels` (N,) and `logits`
  /// (at least N, classes) are of this rank's batch; a rank that has failed passes none. On rank 0,
  /// `take` receives the samples of all ranks.
  void gather(std::span<const std::int32_t> labels, std::span<const float> logits,
              FunctionRef<void(const EvaluatedSamples&)> take);

 private:
  void take_piece(std::int64_t row, std::int64_t rows,
                  FunctionRef<void(const EvaluatedSamples&)> take) const;

  Communicator& comm_;
  Options options_;
  std::int64_t round_ = 0;
  std::int64_t piece_rows_;  ///< of each rank
  // (piece_rows_, ...); those of all ranks on rank 0 only, (ranks, piece_rows_, ...).
  std::vector<std::int32_t> labels_;
  std::vector<std::int32_t> all_labels_;
  std::vector<float> logits_;
  std::vector<float> all_logits_;
};

}  // namespace lockstep
