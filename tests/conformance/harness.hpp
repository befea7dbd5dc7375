#pragma once

#include "conformance/oracle.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/engine/convolution_choices.hpp"
#include "lockstep/engine/engine.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::conformance {

using EngineFactory = std::function<std::unique_ptr<Engine>(const Graph&)>;

/// Chooses Winograd's algorithm for every step of every convolution that it can compute.
[[nodiscard]] ConvolutionChoices all_winograd(const Graph& graph);

/// An engine under test.
struct Candidate {
  std::string name;
  EngineFactory make;
  Precision precision = Precision::fp32;
};
[[nodiscard]] std::vector<Candidate> candidates();

/// A problem in an engine's input format.
class EngineBatch final {
 public:
  EngineBatch(Engine& engine, const oracle::Problem& problem);
  [[nodiscard]] Batch batch() const noexcept;
  [[nodiscard]] Batch first(std::int64_t samples) const noexcept;

 private:
  AlignedBuffer<float> values_;
  AlignedBuffer<std::int32_t> labels_;
  std::vector<ImageMix> mixes_;
  std::vector<std::uint64_t> dropped_;
  std::int64_t size_;
};

void load(Engine& engine, const oracle::State& state);
/// Copies of an arena of the engine, without the tail, in host memory.
[[nodiscard]] std::vector<float> gradients_of(Engine& engine);
[[nodiscard]] std::vector<float> parameters_of(Engine& engine);
[[nodiscard]] inline double top1(const BatchMetrics& of) {
  return of.metrics[metric_index("top1")];
}
[[nodiscard]] inline double top5(const BatchMetrics& of) {
  return of.metrics[metric_index("top5")];
}
[[nodiscard]] inline double confidence(const BatchMetrics& of) {
  return of.metrics[metric_index("confidence")];
}
[[nodiscard]] BatchMetrics run_forward(Program& program, const Batch& batch);

/// For each index of an arena, whether it is an element and not padding.
[[nodiscard]] std::vector<bool> element_mask(const Engine& engine);
/// NaN in every element that is not frozen, zero in the rest.
void poison_gradients(Engine& engine);

/// Compares all results of an engine for a graph with the oracle: training forward and backward,
/// accumulation, inference on a full and a partial batch. Also checks padding, and that
/// gradients are final when their reduction starts.
void check_against_oracle(const Candidate& candidate, const Graph& graph, std::int64_t batch_size);
/// The same for a problem whose targets are mixed in training.
void check_mixed_against_oracle(const Candidate& candidate, const Graph& graph,
                                std::int64_t batch_size);

}  // namespace lockstep::conformance
