#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/metrics.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class Graph;
class UnitExchange;

/// Sums over the samples of a batch.
struct BatchMetrics {
  double loss = 0;  ///< sum of the samples' losses
  MetricValues metrics = {};
  std::int64_t samples = 0;

  BatchMetrics& operator+=(const BatchMetrics& other) noexcept {
    loss += other.loss;
    metrics += other.metrics;
    samples += other.samples;
    return *this;
  }
};

/// Time of one step of a program's list.
struct StepTime {
  std::string name;  ///< "weight gradient of layer1.0.conv2"
  double seconds = 0;
  /// Bytes of the activations, gradients and workspace that the step reads, plus those that it
  /// writes; 0: unknown (always, on CPUs).
  std::size_t bytes = 0;
};

/// Receives the times of each step of a program while wants() is true.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  [[nodiscard]] virtual bool wants() const noexcept = 0;
  /// Begin and end in nanoseconds of the steady clock; for a device, the times when it computed.
  virtual void took(std::string_view step, std::int64_t begin, std::int64_t end) = 0;
};

struct ProgramOptions {
  std::int64_t batch_size = 0;
  bool training = false;
  /// Gathers and reduces units; outlives the program. Null: the program has no such collectives.
  UnitExchange* exchange = nullptr;
  /// Ends of the buckets, ascending: the units in which gradients are reduced that the engine
  /// holds. Read by compile() only. The units of a sharded layout replace them.
  std::span<const std::size_t> bucket_ends = {};
  /// The network for another size of input, with the same layers and parameters. Outlives the
  /// program. Null: Engine::graph().
  const Graph* graph = nullptr;
};

/// A network compiled for one batch size and for training or inference: a flat list of bound
/// primitives. Programs of one engine share its parameters and its activation memory, so only one
/// runs at once, and no other program may run or be compiled between forward and backward. Calls
/// allocate and decide nothing.
class Program {
 public:
  virtual ~Program() = default;
  [[nodiscard]] virtual std::int64_t batch_size() const noexcept = 0;

  /// Training: batch statistics, except for norms whose running statistics are fixed; loss and
  /// metrics of all batch_size() samples. Inference: running statistics. `batch.size` may be less
  /// than batch_size(); metrics then ignore the rest of the buffer, which must be finite. A device
  /// may still be computing when forward returns; call metrics() before the next forward.
  virtual void forward(const Batch& batch) = 0;
  /// Metrics of the last forward; waits until it has ended.
  [[nodiscard]] virtual BatchMetrics metrics() = 0;

  /// Training only, after forward: writes d(loss_scale * sum of losses)/d(parameter) to the
  /// gradient arena, or adds it if `accumulate`. The trainer passes loss_scale = 1 / B.
  struct BackwardOptions {
    float loss_scale = 1.0F;
    bool accumulate = false;
    bool reduces = false;  ///< runs the reductions of a step's last micro-step, too
  };
  virtual void backward(const BackwardOptions& options) = 0;

  /// Batch statistics of the last training forward, in the order and sizes of Graph::statistics():
  /// mean and unbiased variance of each batch norm, concatenated. Those of norms whose running
  /// statistics are fixed mean nothing.
  [[nodiscard]] virtual std::span<const float> batch_statistics() = 0;
  /// Logits of the last forward, plain (N, classes).
  [[nodiscard]] virtual std::span<const float> logits() = 0;
  /// Training only: runs one forward and backward and times each step, in order. It waits after
  /// each step, so the whole takes longer than usual.
  [[nodiscard]] virtual std::vector<StepTime> time_steps(const Batch& batch) = 0;
  /// Bytes of activations, their gradients and scratch memory of this program.
  [[nodiscard]] virtual std::size_t activation_bytes() const noexcept = 0;
};

}  // namespace lockstep
