#pragma once

#include "lockstep/core/shape.hpp"
#include "lockstep/graph/ops.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// One op in its place; the fields are those of its OpDefinition.
struct Node {
  Op op;
  Shape output;
  std::vector<ParameterId> parameters;
  std::vector<StatisticId> statistics;
  std::int64_t multiply_adds;
  std::string function;
  int stage;  ///< number of its stage; -1: none
  int block;  ///< number of its block; -1: none
};

/// A network as a list of ops in the order of computation. Each op adds one value, whose id is the
/// op's index. Node 0 is the input; the last node is a loss. Adding an op infers its shape; a
/// mismatch is an Error(usage) that names the layer and both shapes. Layers have different names.
class Graph final {
 public:
  /// `input`: shape of a sample, without the batch axis; C,H,W of images.
  Graph(std::string name, const Shape& input);

  [[nodiscard]] ValueId input() const noexcept { return 0; }
  /// Adds an op, whose value has the returned id.
  ValueId append(Op op);
  ValueId conv2d(ValueId input, const Conv2dOptions& options) {
    return append(Conv2d{input, options});
  }
  ValueId batch_norm(ValueId input, const BatchNormOptions& options) {
    return append(BatchNorm{input, options});
  }
  ValueId relu(ValueId input) { return append(Relu{input}); }
  ValueId add(ValueId left, ValueId right) { return append(Add{left, right}); }
  ValueId max_pool(ValueId input, const PoolOptions& options) {
    return append(MaxPool{input, options});
  }
  /// Means of windows, as torch's AvgPool2d.
  ValueId avg_pool(ValueId input, const AvgPoolOptions& options) {
    return append(AvgPool{input, options});
  }
  ValueId global_avg_pool(ValueId input) { return append(GlobalAvgPool{input}); }
  ValueId flatten(ValueId input) { return append(Flatten{input}); }
  ValueId linear(ValueId input, const LinearOptions& options) {
    return append(Linear{input, options});
  }
  ValueId softmax_cross_entropy(ValueId logits, const SoftmaxCrossEntropyOptions& options) {
    return append(SoftmaxCrossEntropy{logits, options});
  }
  ValueId binary_cross_entropy(ValueId logits, const BinaryCrossEntropyOptions& options) {
    return append(BinaryCrossEntropy{logits, options});
  }
  ValueId mean_squared_error(ValueId logits, const MeanSquaredErrorOptions& options) {
    return append(MeanSquaredError{logits, options});
  }

  /// Ops from here belong to a new block, which --shard gathers as a whole and stochastic depth
  /// drops, up to the next block, stage or end_blocks(). Returns its number, from 0, for
  /// StochasticDepth::block.
  int begin_block() noexcept { return block_ = blocks_++; }
  /// Ops from here, with the blocks that follow, belong to a new stage.
  void begin_stage() noexcept {
    stage_ = stages_++;
    block_ = -1;
  }
  /// Ops from here belong to no block or stage.
  void end_blocks() noexcept { stage_ = block_ = -1; }

  void set_lr_scale(ParameterId id, double lr_scale) {
    parameters_[static_cast<std::size_t>(id)].lr_scale = lr_scale;
  }

  /// Fixes the running statistics of a batch norm, whose weight and bias must be frozen.
  void fix_statistics(const Node& norm);
  /// Whether a batch norm's running statistics are fixed.
  [[nodiscard]] bool has_fixed_statistics(const Node& norm) const {
    return statistics_[static_cast<std::size_t>(norm.statistics.front())].is_fixed;
  }
  /// Whether those of any batch norm are.
  [[nodiscard]] bool has_fixed_statistics() const {
    return std::ranges::any_of(statistics_, &RunningStatistic::is_fixed);
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const Shape& input_shape() const noexcept { return nodes_.front().output; }
  [[nodiscard]] std::span<const Node> nodes() const noexcept { return nodes_; }
  /// The value that the loss reads; the last one if there is no loss.
  [[nodiscard]] ValueId logits() const;
  /// Number of logits of a sample; of a classifier, its classes.
  [[nodiscard]] std::int64_t outputs() const;
  [[nodiscard]] std::span<const Parameter> parameters() const noexcept { return parameters_; }
  [[nodiscard]] std::span<const RunningStatistic> statistics() const noexcept {
    return statistics_;
  }
  /// Number of trained values, without any engine's padding.
  [[nodiscard]] std::int64_t parameter_count() const;
  /// CRC-32C over ops, shapes and names: equal for networks that compute the same function of the
  /// same parameters. The loss, momentum and initial values are not included.
  [[nodiscard]] std::uint32_t fingerprint() const;

 private:
  [[nodiscard]] OpInputs inputs_of(const Op& op) const;
  void require_usable(const Op& op, const std::vector<Parameter>& parameters) const;

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<Parameter> parameters_;
  std::vector<RunningStatistic> statistics_;
  int stages_ = 0;  ///< begun so far
  int blocks_ = 0;
  int stage_ = -1;  ///< of the next op; -1: none
  int block_ = -1;
};

/// Why two networks cannot use the same parameters, as one architecture can for two sizes of
/// images: "fc1.weight is 512x768 or 512x1728", or that layers differ; empty if they can.
/// `resizes_embeddings`: the parameters of one are read for the other, by stored_parameters().
[[nodiscard]] std::string layer_difference(const Graph& one, const Graph& other,
                                           bool resizes_embeddings = false);

/// By block, the probability with which stochastic depth drops it; empty if it drops none.
[[nodiscard]] std::vector<float> drop_probabilities(const Graph& graph);

/// Initial values of a parameter in plain layout: a pure function of (seed, parameter name, shape),
/// the same on every machine.
[[nodiscard]] std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed);

}  // namespace lockstep
