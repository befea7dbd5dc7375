#include "lockstep/export/fold_batch_norms.hpp"

#include <cmath>
#include <span>
#include <utility>
#include <variant>

namespace lockstep {
namespace {

constexpr ValueId none = -1;

/// For each value, the batch norm to fold into the convolution that computes it, else `none`.
std::vector<ValueId> foldable_norms(const Graph& graph) {
  const std::span<const Node> nodes = graph.nodes();
  std::vector<int> readers(nodes.size());
  for (const Node& node : nodes) {
    for_each_input(node.op, [&](ValueId input) { ++readers[static_cast<std::size_t>(input)]; });
  }
  std::vector<ValueId> norms(nodes.size(), none);
  for (std::size_t value = 0; value < nodes.size(); ++value) {
    const auto* norm = std::get_if<BatchNorm>(&nodes[value].op);
    if (norm == nullptr) continue;
    const auto input = static_cast<std::size_t>(norm->input);
    if (std::holds_alternative<Conv2d>(nodes[input].op) && readers[input] == 1) {
      norms[input] = static_cast<ValueId>(value);
    }
  }
  return norms;
}

/// Rebuilds a model op by op.
class Folding final {
 public:
  explicit Folding(const TrainedModel& source)
      : source_(source),
        norms_(foldable_norms(source.graph)),
        values_(source.graph.nodes().size(), none),
        folded_{.graph = Graph(source.graph.name(), source.graph.input_shape()),
                .parameters = {},
                .statistics = {},
                .mean = source.mean,
                .std = source.std,
                .class_names = source.class_names,
                .step = source.step,
                .epoch = source.epoch,
                .weights = source.weights,
                .resize = source.resize,
                .interpolation = source.interpolation} {}

  TrainedModel fold() {
    for (std::size_t value = 0; value < values_.size(); ++value) {
      const Node& node = source_.graph.nodes()[value];
      const ValueId norm = norms_[value];
      if (values_[value] != none) continue;  // a norm already folded
      if (norm != none) {
        values_[value] = values_[static_cast<std::size_t>(norm)] =
            add_convolution(node, source_.graph.nodes()[static_cast<std::size_t>(norm)]);
      } else {
        values_[value] = add(node.op);
        copy_values(node);
      }
    }
    return std::move(folded_);
  }

 private:
  [[nodiscard]] ValueId at(ValueId value) const { return values_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] const std::vector<float>& parameter(const Node& node, std::size_t index) const {
    return source_.parameters[static_cast<std::size_t>(node.parameters[index])];
  }
  [[nodiscard]] const std::vector<float>& statistic(const Node& node, std::size_t index) const {
    return source_.statistics[static_cast<std::size_t>(node.statistics[index])];
  }
  void copy_values(const Node& node) {
    for (std::size_t i = 0; i < node.parameters.size(); ++i) {
      folded_.parameters.push_back(parameter(node, i));
    }
    for (std::size_t i = 0; i < node.statistics.size(); ++i) {
      folded_.statistics.push_back(statistic(node, i));
    }
  }

  ValueId add(Op op) {
    if (std::holds_alternative<Input>(op)) return folded_.graph.input();
    for_each_input(op, [this](ValueId& input) { input = at(input); });
    return folded_.graph.append(std::move(op));
  }

  ValueId add_convolution(const Node& convolution, const Node& norm) {
    Conv2d op = std::get<Conv2d>(convolution.op);
    const double eps = std::get<BatchNorm>(norm.op).options.eps;
    std::vector<float> weights = parameter(convolution, 0);
    const std::size_t channels = static_cast<std::size_t>(op.options.out_channels);
    const std::size_t channel_size = weights.size() / channels;
    std::vector<float> bias(channels);
    for (std::size_t k = 0; k < channels; ++k) {
      const double scale = parameter(norm, 0)[k] / std::sqrt(statistic(norm, 1)[k] + eps);
      const double old_bias = op.options.bias ? parameter(convolution, 1)[k] : 0.0;
      for (float& weight : std::span(weights).subspan(k * channel_size, channel_size)) {
        weight = static_cast<float>(weight * scale);
      }
      bias[k] =
          static_cast<float>((old_bias - statistic(norm, 0)[k]) * scale + parameter(norm, 1)[k]);
    }
    op.options.bias = true;
    folded_.parameters.push_back(std::move(weights));
    folded_.parameters.push_back(std::move(bias));
    return add(op);
  }

  const TrainedModel& source_;
  std::vector<ValueId> norms_;
  std::vector<ValueId> values_;  ///< of the source's values, those in the folded graph
  TrainedModel folded_;
};

}  // namespace

TrainedModel fold_batch_norms(const TrainedModel& model) {
  return Folding(model).fold();
}

}  // namespace lockstep
