#include "convolution_request.hpp"

#include "lockstep/core/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

namespace lockstep::gpu {
namespace {

std::string_view name_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward:
      break;
    case ConvolutionPass::backward_data:
      return "data gradient";
    case ConvolutionPass::backward_weights:
      return "weight gradient";
  }
  return "forward";
}

std::string_view name_of(DataType type) {
  switch (type) {
    case DataType::f32:
      break;
    case DataType::bf16:
      return "bf16";
    case DataType::f16:
      return "fp16";
  }
  return "fp32";
}

/// The convolution shape of a node, and its input; empty for nodes without a convolution.
struct ConvolutionNode {
  ConvolutionShape shape;
  ValueId input;
  std::string layer;
};
std::optional<ConvolutionNode> convolution_of(const Graph& graph, const Node& node) {
  const auto output_of = [&](ValueId id) -> const Shape& {
    return graph.nodes()[static_cast<std::size_t>(id)].output;
  };
  if (const auto* conv = std::get_if<Conv2d>(&node.op)) {
    const Shape& in = output_of(conv->input);
    return ConvolutionNode{.shape = {.height = in[1],
                                     .width = in[2],
                                     .in_channels = in[0],
                                     .out_channels = conv->options.out_channels,
                                     .kernel = conv->options.kernel,
                                     .stride = conv->options.stride,
                                     .padding = conv->options.padding,
                                     .groups = conv->options.groups},
                           .input = conv->input,
                           .layer = conv->options.name};
  }
  if (const auto* linear = std::get_if<Linear>(&node.op)) {
    const Shape& in = output_of(linear->input);
    const bool flat = in.rank() == 1;
    return ConvolutionNode{.shape = {.height = flat ? 1 : in[1],
                                     .width = flat ? 1 : in[2],
                                     .in_channels = in[0],
                                     .out_channels = linear->options.out_features},
                           .input = linear->input,
                           .layer = linear->options.name};
  }
  return std::nullopt;
}

std::string kernel_text(const ConvolutionShape& shape) {
  return shape.kernel_width == 0 ? std::to_string(shape.kernel)
                                 : fmt::format("{}x{}", shape.kernel, shape.kernel_width);
}

}  // namespace

std::string ConvolutionRequest::text() const {
  return fmt::format("{} {} of {}x{}x{}x{} to {}, kernel {}, stride {}, padding {}{}",
                     shape.tf32 ? "tf32" : name_of(shape.type), name_of(pass), shape.batch,
                     shape.height, shape.width, shape.in_channels, shape.out_channels,
                     kernel_text(shape), shape.stride, shape.padding,
                     shape.groups == 1 ? "" : fmt::format(", {} groups", shape.groups));
}

bool ends_in_linear(const Graph& graph) {
  const auto nodes = graph.nodes();
  return nodes.size() > 1 && is_loss(nodes.back().op) &&
         std::holds_alternative<Linear>(nodes[nodes.size() - 2].op);
}

ConvolutionShape widened(ConvolutionShape shape) {
  shape.type = DataType::f32;
  shape.tf32 = true;
  return shape;
}

std::optional<ColumnGather> column_gather(const ConvolutionShape& shape) {
  constexpr std::int64_t most_pairs = 4;  // of rows, and of columns
  const std::int64_t border = shape.padding + shape.padding % 2;
  const std::int64_t pairs = (shape.kernel + border - shape.padding + 1) / 2;
  if (shape.stride != 2 || shape.groups != 1 || shape.kernel < 3 || pairs > most_pairs ||
      shape.in_channels > ColumnGather::channels) {
    return std::nullopt;
  }
  return ColumnGather{.batch = shape.batch,
                      .height = shape.height,
                      .width = shape.width,
                      .padded = padded_channels(shape.in_channels),
                      .border = border,
                      .pairs = pairs,
                      .gathered_height = shape.out_height() + pairs - 1,
                      .gathered_width = shape.out_width(),
                      .kernel = shape.kernel,
                      .kernel_begin = border - shape.padding,
                      .filters = padded_channels(shape.out_channels)};
}

ConvolutionShape stored_shape(ConvolutionShape shape, const std::optional<ColumnGather>& gather,
                              const std::string& layer) {
  if (gather) {
    return {.batch = shape.batch,
            .height = gather->gathered_height,
            .width = gather->gathered_width,
            .in_channels = gather->gathered_channels(),
            .out_channels = gather->filters,
            .kernel = gather->pairs,
            .type = shape.type,
            .tf32 = shape.tf32,
            .kernel_width = 1};
  }
  for (std::int64_t* channels : {&shape.in_channels, &shape.out_channels}) {
    const std::int64_t padded = padded_channels(*channels);
    if (shape.groups > 1 && padded != *channels) {
      fail(ExitStatus::usage,
           "{}: {} groups of {} to {} channels (in groups, the GPU takes multiples of {} "
           "channels); choose another --width, or the CPU",
           layer, shape.groups, shape.in_channels, shape.out_channels, padded_channels(1));
    }
    *channels = padded;
  }
  return shape;
}

std::vector<ConvolutionRequest> requests_of(const Graph& graph, Precision precision,
                                            std::int64_t batch_size) {
  const DataType type = storage_of(precision);
  std::vector<ConvolutionRequest> requests;
  for (const Node& node : graph.nodes()) {
    auto convolution = convolution_of(graph, node);
    if (!convolution) continue;
    ConvolutionShape& shape = convolution->shape;
    shape.batch = batch_size;
    shape.type = type;
    shape.tf32 = precision == Precision::tf32;
    const bool makes_logits = &node == &graph.nodes().back() - 1 && ends_in_linear(graph);
    const bool reads_images = convolution->input == graph.input();
    shape =
        stored_shape(shape, reads_images ? column_gather(shape) : std::nullopt, convolution->layer);
    for (const ConvolutionPass pass : {ConvolutionPass::forward, ConvolutionPass::backward_data,
                                       ConvolutionPass::backward_weights}) {
      // Images have no gradient.
      if (pass == ConvolutionPass::backward_data && reads_images) continue;
      const bool wide = pass == ConvolutionPass::forward && makes_logits && type != DataType::f32;
      const ConvolutionRequest request{.shape = wide ? widened(shape) : shape, .pass = pass};
      if (std::ranges::find(requests, request) == requests.end()) requests.push_back(request);
    }
  }
  return requests;
}

double ConvolutionRequest::operations() const noexcept {
  const double positions =
      static_cast<double>(shape.batch * shape.out_height() * shape.out_width());
  return 2 * positions * static_cast<double>(shape.channels_per_group() * shape.out_channels) *
         static_cast<double>(shape.kernel * shape.kernel_columns());
}

std::string to_text(const AlgorithmChoices& choices, const std::string& library) {
  std::string text;
  for (const auto& [request, algorithm] : choices) {
    text += fmt::format("{}\t{}\t{}\n", library, request, algorithm);
  }
  return text;
}

AlgorithmChoices parse_algorithms(const std::string& text, const std::string& library) {
  const std::string prefix = library + '\t';
  AlgorithmChoices choices;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(prefix)) continue;
    const std::size_t begin = prefix.size();
    const std::size_t tab = line.find('\t', begin);
    if (tab != std::string::npos) choices[line.substr(begin, tab - begin)] = line.substr(tab + 1);
  }
  return choices;
}

}  // namespace lockstep::gpu
