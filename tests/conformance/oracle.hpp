#pragma once

#include "lockstep/core/image_mix.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::oracle {

using Values = std::vector<double>;

/// A graph's state in double precision and plain layouts (NCHW, OIHW, OI).
struct State {
  std::vector<Values> parameters;  ///< by ParameterId
  std::vector<Values> statistics;  ///< by StatisticId: running means and variances
};

enum class Mode { training, inference };

struct Result {
  Values logits;  ///< (N, K)
  double loss = 0;
  std::int64_t top1 = 0;
  std::int64_t top5 = 0;
  double confidence = 0;          ///< sum of the largest probabilities
  Values batch_statistics;        ///< training: means and unbiased variances, concatenated
  std::vector<Values> gradients;  ///< training: by ParameterId, of loss_scale * loss
};

struct Problem {
  std::int64_t batch_size = 0;
  Values images;                     ///< (N, C, H, W)
  std::vector<std::int32_t> labels;  ///< (N,)
  double loss_scale = 1;
  std::vector<ImageMix> mixes = {};         ///< (N,), of the targets alone; empty: not mixed
  std::vector<std::uint64_t> dropped = {};  ///< (N,), as in Batch; empty: no block
};

/// If given, rounds every value except the logits, every value's gradient, and the weights (not
/// biases, scales and shifts) that convolutions and linear layers use.
using Rounding = std::function<double(double)>;

/// Runs a graph forward and, in training, backward, with slow loops that follow the definitions of
/// the ops. Every engine is compared with it.
[[nodiscard]] Result run(const Graph& graph, const State& state, const Problem& problem, Mode mode,
                         const Rounding& rounding = {});

/// Rounds to the significand of tf32, bf16 or fp16, up or down at random so that the mean is
/// preserved. Its errors are typical of an engine that rounds anywhere in the graph.
[[nodiscard]] Rounding random_rounding(Precision precision, std::uint64_t seed);

}  // namespace lockstep::oracle
