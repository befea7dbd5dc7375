#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/engine/engine_memory.hpp"
#include "lockstep/engine/parameter_arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

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
  /// The network for images of another size, with the same layers and parameters. Outlives the
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

/// Owns a network's parameters, gradients and running statistics on one device, and compiles the
/// network. The arenas are in device memory; the host accesses them only by memory().
class Engine {
 public:
  virtual ~Engine() = default;

  [[nodiscard]] virtual std::string description()
      const = 0;  ///< "oneDNN 2.6.3, avx512_core_bf16, 2 threads"
  [[nodiscard]] virtual const Graph& graph() const noexcept = 0;
  [[nodiscard]] virtual InputFormat input_format() noexcept = 0;

  /// Starts to copy a batch of pixels for a later forward, concurrently with other work. At most
  /// two batches may be in flight.
  virtual void prefetch(const Batch&) {}
  /// Blocks until the pixels of the last forward have been copied, so that their memory may be
  /// reused while a device still computes.
  virtual void await_copy() {}
  /// Ends the copy of a batch that was prefetched, but is not going to be used.
  virtual void discard(const Batch&) {}

  [[nodiscard]] virtual EngineMemory& memory() noexcept = 0;
  /// The parameters and gradients, in memory(). The pointer keeps all of the engine's memory alive,
  /// the values of its programs too, because collectives may be in flight after an error.
  [[nodiscard]] virtual std::shared_ptr<const ParameterArena> arena() const noexcept = 0;
  /// All running statistics in host memory, concatenated in the order of Graph::statistics().
  [[nodiscard]] virtual std::span<float> running_statistics() noexcept = 0;

  /// Times every step that runs while `timer` wants times; a device then queues steps one by one.
  /// `timer` must outlive the engine's last step.
  virtual void set_step_timer(StepTimer& timer) = 0;
  /// Blocks until `timer` has received all steps that were run.
  virtual void report_steps() {}
  /// Seconds that a device needed for the forwards and backwards of training that it has ended
  /// since the last call, without its waits for other ranks; 0: not measured. Does not block.
  [[nodiscard]] virtual double take_device_seconds() { return 0; }

  /// Error(usage) if no program has these options; Error(internal) if the layout has units and the
  /// options have no exchange.
  [[nodiscard]] virtual std::unique_ptr<Program> compile(const ProgramOptions& options) = 0;
  [[nodiscard]] std::unique_ptr<Program> compile_training(std::int64_t batch_size,
                                                          UnitExchange* exchange = nullptr) {
    return compile({.batch_size = batch_size, .training = true, .exchange = exchange});
  }
  [[nodiscard]] std::unique_ptr<Program> compile_inference(std::int64_t batch_size,
                                                           UnitExchange* exchange = nullptr) {
    return compile({.batch_size = batch_size, .training = false, .exchange = exchange});
  }

  // The arena's functions.
  [[nodiscard]] const ArenaLayout& layout() const { return arena()->layout(); }
  [[nodiscard]] std::span<float> parameters() const { return arena()->parameters(); }
  [[nodiscard]] std::span<std::byte> held_unit(std::size_t unit) const {
    return arena()->held_unit(unit);
  }
  [[nodiscard]] std::span<float> gradients() const { return arena()->gradients(); }
  void to_plain(std::span<const float> view, ParameterId id, std::span<float> plain) const {
    arena()->to_plain(view, id, plain);
  }
  void from_plain(std::span<const float> plain, ParameterId id, std::span<float> view) const {
    arena()->from_plain(plain, id, view);
  }
};

}  // namespace lockstep
