#pragma once

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
  Values batch_statistics;        ///< training: means and unbiased variances, concatenated
  std::vector<Values> gradients;  ///< training: by ParameterId, of loss_scale * loss
};

struct Problem {
  std::int64_t batch_size = 0;
  Values images;                     ///< (N, C, H, W)
  std::vector<std::int32_t> labels;  ///< (N,)
  double loss_scale = 1;
};

/// Where given, applied to every value but the logits, to every value's gradient, and to the
/// weights (not biases, scales and shifts) that convolutions and linear layers work with.
using Rounding = std::function<double(double)>;

/// Runs a graph forward and, in training, backward, by the definitions and nothing else: slow loops
/// with which every engine is compared.
[[nodiscard]] Result run(const Graph& graph, const State& state, const Problem& problem, Mode mode,
                         const Rounding& rounding = {});

/// To the significand of tf32, bf16 or fp16, up or down at random so that the mean is kept: its
/// errors stand for those of any engine, wherever that one rounds.
[[nodiscard]] Rounding random_rounding(Precision precision, std::uint64_t seed);

}  // namespace lockstep::oracle
