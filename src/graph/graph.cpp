#include "lockstep/graph/graph.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "op_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

namespace lockstep {
namespace {

void require_window(const std::string& layer, std::int64_t kernel, std::int64_t stride,
                    std::int64_t padding) {
  if (kernel >= 1 && stride >= 1 && padding >= 0) return;
  fail(ExitStatus::usage, "{}: kernel {}, stride {}, padding {} (they must be at least 1, 1 and 0)",
       layer, kernel, stride, padding);
}

/// floor((extent + 2 padding - kernel) / stride) + 1, checked.
std::int64_t window_output(const std::string& layer, std::int64_t extent, std::int64_t kernel,
                           std::int64_t stride, std::int64_t padding) {
  require_window(layer, kernel, stride, padding);
  if (kernel > extent + 2 * padding) {
    fail(ExitStatus::usage,
         "{}: a kernel of {} is larger than its input of {} with padding {} (nothing is left); use "
         "larger images",
         layer, kernel, extent, padding);
  }
  return (extent + 2 * padding - kernel) / stride + 1;
}

void require_image(const std::string& layer, const Shape& shape) {
  if (shape.rank() != 3) {
    fail(ExitStatus::usage, "{} takes a C,H,W input, but gets {}", layer, to_string(shape));
  }
}

template <typename Options>
void require_pooling(const std::string& layer, const Shape& in, const Options& options) {
  require_image(layer, in);
  if (2 * options.padding <= options.kernel) return;
  fail(ExitStatus::usage, "{}: padding {} is more than half of the kernel {}", layer,
       options.padding, options.kernel);
}

template <typename Options>
Shape pooled_shape(const std::string& layer, const Shape& in, const Options& options) {
  require_pooling(layer, in, options);
  return {in[0], window_output(layer, in[1], options.kernel, options.stride, options.padding),
          window_output(layer, in[2], options.kernel, options.stride, options.padding)};
}

/// Of windows that may extend past the image; each begins within it or its padding.
Shape partially_pooled_shape(const std::string& layer, const Shape& in,
                             const AvgPoolOptions& options) {
  require_pooling(layer, in, options);
  require_window(layer, options.kernel, options.stride, options.padding);
  const auto output = [&](std::int64_t extent) {
    const std::int64_t rest =
        std::max<std::int64_t>(extent + 2 * options.padding - options.kernel, 0);
    const std::int64_t last = (rest + options.stride - 1) / options.stride;
    return last * options.stride < extent + options.padding ? last + 1 : last;
  };
  return {in[0], output(in[1]), output(in[2])};
}

/// Inputs and options that the op's function depends on. Training-only settings (momentum,
/// smoothing, initial weights) may differ.
std::string details_of(const Op& any) {
  std::string text;
  std::visit(
      [&](const auto& op) {
        using T = std::decay_t<decltype(op)>;
        if constexpr (requires { op.input; }) text += " <" + std::to_string(op.input);
        if constexpr (std::is_same_v<T, Add>) {
          text += " <" + std::to_string(op.left) + " <" + std::to_string(op.right);
        }
        if constexpr (std::is_same_v<T, BatchNorm>) {
          text += fmt::format(" e{:.17g}", op.options.eps);
        }
        if constexpr (requires { op.options.kernel; }) {
          text += " k" + std::to_string(op.options.kernel) + " s" +
                  std::to_string(op.options.stride) + " p" + std::to_string(op.options.padding);
        }
        if constexpr (std::is_same_v<T, AvgPool>) {
          if (op.options.partial_windows) text += " partial";
        }
      },
      any);
  return text;
}

}  // namespace

Graph::Graph(std::string name, ImageShape image, std::int64_t classes)
    : name_(std::move(name)), image_(image), classes_(classes) {
  if (image.channels < 1 || image.height < 1 || image.width < 1 || classes < 1) {
    fail(ExitStatus::usage, "{}: an input of {}x{}x{} and {} classes (all must be at least 1)",
         name_, image.channels, image.height, image.width, classes);
  }
  nodes_.push_back({.op = Input{},
                    .output = Shape{image.channels, image.height, image.width},
                    .parameters = {},
                    .statistics = {}});
}

const Shape& Graph::input_shape(ValueId value) const {
  // Here and not in append(), so that a rejected op leaves no parameters behind.
  if (is_loss(nodes_.back().op)) {
    fail(ExitStatus::usage, "{}: an op after the loss ({} ends the graph)", name_,
         layer_name(nodes_.back().op));
  }
  if (value < 0 || static_cast<std::size_t>(value) >= nodes_.size()) {
    fail(ExitStatus::usage, "{}: value {} is not in the graph (it has {} ops)", name_, value,
         nodes_.size());
  }
  return nodes_[static_cast<std::size_t>(value)].output;
}

std::string Graph::describe(ValueId value) const {
  const Node& node = nodes_[static_cast<std::size_t>(value)];
  return fmt::format("{} (op {}, {})", layer_name(node.op), value, to_string(node.output));
}

ValueId Graph::append(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<ValueId>(nodes_.size() - 1);
}

ParameterId Graph::add_parameter(Parameter parameter) {
  const auto same = [&](const Parameter& other) { return other.name == parameter.name; };
  if (std::any_of(parameters_.begin(), parameters_.end(), same)) {
    fail(ExitStatus::usage, "{}: two parameters are named {} (layer names must differ)", name_,
         parameter.name);
  }
  parameters_.push_back(std::move(parameter));
  return static_cast<ParameterId>(parameters_.size() - 1);
}

ValueId Graph::conv2d(ValueId input, const Conv2dOptions& options) {
  const Shape in = input_shape(input);
  require_image(options.name, in);
  if (options.out_channels < 1) {
    fail(ExitStatus::usage, "{}: {} output channels (at least 1 is needed)", options.name,
         options.out_channels);
  }
  if (options.groups < 1 || in[0] % options.groups != 0 ||
      options.out_channels % options.groups != 0) {
    fail(
        ExitStatus::usage,
        "{}: {} groups do not divide {} input and {} output channels (groups must be equal); use a "
        "common divisor",
        options.name, options.groups, in[0], options.out_channels);
  }
  const std::int64_t seen_channels = in[0] / options.groups;
  const std::int64_t fan_in = seen_channels * options.kernel * options.kernel;
  const Shape out{
      options.out_channels,
      window_output(options.name, in[1], options.kernel, options.stride, options.padding),
      window_output(options.name, in[2], options.kernel, options.stride, options.padding)};
  Node node{.op = Conv2d{input, options}, .output = out, .parameters = {}, .statistics = {}};
  node.parameters.push_back(
      add_parameter({.name = options.name + ".weight",
                     .shape = {options.out_channels, seen_channels, options.kernel, options.kernel},
                     .kind = ParameterKind::weight,
                     .initialization = Initialization::kaiming_normal_fan_out,
                     .fan_in = fan_in}));
  if (options.bias) {
    node.parameters.push_back(add_parameter({.name = options.name + ".bias",
                                             .shape = {options.out_channels},
                                             .kind = ParameterKind::bias,
                                             .initialization = Initialization::uniform_fan_in,
                                             .fan_in = fan_in}));
  }
  return append(std::move(node));
}

ValueId Graph::batch_norm(ValueId input, const BatchNormOptions& options) {
  const Shape in = input_shape(input);
  require_image(options.name, in);
  const auto [probability, block] = options.drop;
  if (!(probability >= 0 && probability < 1) || block < 0 || block >= max_dropped_blocks) {
    fail(ExitStatus::usage,
         "{}: block {} dropped with probability {} (it must be a block of 0 to {}, and a "
         "probability of at least 0 and below 1)",
         options.name, block, probability, max_dropped_blocks - 1);
  }
  Node node{.op = BatchNorm{input, options}, .output = in, .parameters = {}, .statistics = {}};
  node.parameters.push_back(add_parameter(
      {.name = options.name + ".weight",
       .shape = {in[0]},
       .kind = ParameterKind::norm,
       .initialization = options.zero_init_weight ? Initialization::zeros : Initialization::ones}));
  node.parameters.push_back(add_parameter({.name = options.name + ".bias",
                                           .shape = {in[0]},
                                           .kind = ParameterKind::norm,
                                           .initialization = Initialization::zeros}));
  for (const auto& [suffix, initial] : {std::pair{".running_mean", 0.0F}, {".running_var", 1.0F}}) {
    node.statistics.push_back(static_cast<StatisticId>(statistics_.size()));
    statistics_.push_back(
        {.name = options.name + suffix, .channels = in[0], .initial_value = initial});
  }
  return append(std::move(node));
}

ValueId Graph::relu(ValueId input) {
  return append(
      {.op = Relu{input}, .output = input_shape(input), .parameters = {}, .statistics = {}});
}

ValueId Graph::add(ValueId left, ValueId right) {
  if (input_shape(left) != input_shape(right)) {
    fail(ExitStatus::usage, "{}: add of {} and {} (their shapes must be equal)", name_,
         describe(left), describe(right));
  }
  return append(
      {.op = Add{left, right}, .output = input_shape(left), .parameters = {}, .statistics = {}});
}

ValueId Graph::max_pool(ValueId input, const PoolOptions& options) {
  const Shape out = pooled_shape("max_pool of " + describe(input), input_shape(input), options);
  return append({.op = MaxPool{input, options}, .output = out, .parameters = {}, .statistics = {}});
}

ValueId Graph::avg_pool(ValueId input, const AvgPoolOptions& options) {
  const std::string layer = "avg_pool of " + describe(input);
  const Shape in = input_shape(input);
  const Shape out = options.partial_windows ? partially_pooled_shape(layer, in, options)
                                            : pooled_shape(layer, in, options);
  return append({.op = AvgPool{input, options}, .output = out, .parameters = {}, .statistics = {}});
}

ValueId Graph::global_avg_pool(ValueId input) {
  const Shape in = input_shape(input);
  require_image("global_avg_pool of " + describe(input), in);
  return append(
      {.op = GlobalAvgPool{input}, .output = {in[0], 1, 1}, .parameters = {}, .statistics = {}});
}

ValueId Graph::flatten(ValueId input) {
  return append({.op = Flatten{input},
                 .output = Shape{input_shape(input).elements()},
                 .parameters = {},
                 .statistics = {}});
}

ValueId Graph::linear(ValueId input, const LinearOptions& options) {
  const Shape in = input_shape(input);
  if (in.rank() != 1) {
    fail(ExitStatus::usage, "{} takes a flat input, but gets {} (flatten it first)", options.name,
         to_string(in));
  }
  if (options.out_features < 1) {
    fail(ExitStatus::usage, "{}: {} output features (at least 1 is needed)", options.name,
         options.out_features);
  }
  Node node{.op = Linear{input, options},
            .output = Shape{options.out_features},
            .parameters = {},
            .statistics = {}};
  node.parameters.push_back(add_parameter({.name = options.name + ".weight",
                                           .shape = {options.out_features, in[0]},
                                           .kind = ParameterKind::weight,
                                           .initialization = Initialization::uniform_fan_in,
                                           .fan_in = in[0]}));
  node.parameters.push_back(add_parameter({.name = options.name + ".bias",
                                           .shape = {options.out_features},
                                           .kind = ParameterKind::bias,
                                           .initialization = Initialization::uniform_fan_in,
                                           .fan_in = in[0]}));
  return append(std::move(node));
}

void Graph::require_loss(ValueId logits, double label_smoothing) const {
  if (input_shape(logits) != Shape{classes_}) {
    fail(ExitStatus::usage, "{}: the loss gets logits {} for {} classes", name_, describe(logits),
         classes_);
  }
  if (!(label_smoothing >= 0 && label_smoothing < 1)) {
    fail(ExitStatus::usage, "{}: label smoothing {} (it must be at least 0 and below 1)", name_,
         label_smoothing);
  }
}

ValueId Graph::softmax_cross_entropy(ValueId logits, const SoftmaxCrossEntropyOptions& options) {
  require_loss(logits, options.label_smoothing);
  return append({.op = SoftmaxCrossEntropy{logits, options},
                 .output = Shape{},
                 .parameters = {},
                 .statistics = {}});
}

ValueId Graph::binary_cross_entropy(ValueId logits, const BinaryCrossEntropyOptions& options) {
  require_loss(logits, options.label_smoothing);
  if (!(options.target_threshold >= 0 && options.target_threshold < 1)) {
    fail(ExitStatus::usage, "{}: target threshold {} (it must be at least 0 and below 1)", name_,
         options.target_threshold);
  }
  return append({.op = BinaryCrossEntropy{logits, options},
                 .output = Shape{},
                 .parameters = {},
                 .statistics = {}});
}

void Graph::fix_statistics(const Node& norm) {
  for (const ParameterId id : norm.parameters) {
    const Parameter& parameter = parameters_[static_cast<std::size_t>(id)];
    if (parameter.is_frozen()) continue;
    fail(ExitStatus::usage,
         "{}: the running statistics of a norm whose {} is trained cannot be fixed; freeze it",
         name_, parameter.name);
  }
  for (const StatisticId id : norm.statistics) {
    statistics_[static_cast<std::size_t>(id)].is_fixed = true;
  }
}

std::int64_t Graph::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.shape.elements();
  return count;
}

std::uint32_t Graph::fingerprint() const {
  std::string text = name_ + '\n';
  for (const Node& node : nodes_) {
    // A network is the same with another loss.
    const std::size_t index =
        is_loss(node.op) ? Op(SoftmaxCrossEntropy{}).index() : node.op.index();
    text += std::to_string(index) + ' ' + to_string(node.output) + details_of(node.op) + '\n';
  }
  for (const Parameter& parameter : parameters_) {
    text += parameter.name + ' ' + to_string(parameter.shape) + '\n';
  }
  return crc32c(text);
}

std::vector<float> drop_probabilities(const Graph& graph) {
  std::vector<float> result;
  for (const Node& node : graph.nodes()) {
    const auto* norm = std::get_if<BatchNorm>(&node.op);
    if (norm == nullptr || norm->options.drop.probability == 0) continue;
    const auto block = static_cast<std::size_t>(norm->options.drop.block);
    result.resize(std::max(result.size(), block + 1));
    result[block] = static_cast<float>(norm->options.drop.probability);
  }
  return result;
}

std::string layer_difference(const Graph& one, const Graph& other) {
  const auto same_parameter = [](const Parameter& left, const Parameter& right) {
    return left.name == right.name && left.shape == right.shape;
  };
  const auto [left, right] =
      std::ranges::mismatch(one.parameters(), other.parameters(), same_parameter);
  const bool ends = left == one.parameters().end() || right == other.parameters().end();
  if (!ends && left->name == right->name) {
    return fmt::format("{} is {} or {}", left->name, to_string(left->shape),
                       to_string(right->shape));
  }
  const auto same_op = [](const Node& left_node, const Node& right_node) {
    return left_node.op.index() == right_node.op.index() &&
           details_of(left_node.op) == details_of(right_node.op);
  };
  const bool same = std::ranges::equal(one.parameters(), other.parameters(), same_parameter) &&
                    std::ranges::equal(one.nodes(), other.nodes(), same_op);
  return same ? "" : "it has other layers";
}

}  // namespace lockstep
