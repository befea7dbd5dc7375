#include "cudnn_graph.hpp"

#include <vector>

namespace lockstep::gpu::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

fe::DataType_t library_type(DataType type) {
  switch (type) {
    case DataType::f32:
      break;
    case DataType::bf16:
      return fe::DataType_t::BFLOAT16;
    case DataType::f16:
      return fe::DataType_t::HALF;
  }
  return fe::DataType_t::FLOAT;
}

/// Extents are in the library's order (N, C, H, W); memory is in the order (N, H, W, C).
void set_extents(Tensor_attributes& tensor, std::int64_t id, DataType type,
                 const Extents& extents) {
  const auto [n, c, h, w] = extents;
  tensor.set_uid(id)
      .set_data_type(library_type(type))
      .set_dim({n, c, h, w})
      .set_stride({h * w * c, 1, w * c, c});
}

Tensor add_input(fe::graph::Graph& graph, std::int64_t id, DataType type, const Extents& extents) {
  Tensor_attributes tensor;
  set_extents(tensor, id, type, extents);
  return graph.tensor(tensor);
}

template <typename Attributes>
Attributes attributes_of(const ConvolutionShape& shape) {
  Attributes attributes;
  attributes.set_padding({shape.padding, shape.padding})
      .set_stride({shape.stride, shape.stride})
      .set_dilation({1, 1})
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return attributes;
}

}  // namespace

TensorSet extents_of(const ConvolutionShape& shape) {
  return {.x = {shape.batch, shape.in_channels, shape.height, shape.width},
          .weights = {shape.out_channels, shape.channels_per_group(), shape.kernel,
                      shape.kernel_columns()},
          .y = {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()}};
}

std::unique_ptr<fe::graph::Graph> make_graph(const ConvolutionRequest& request) {
  const auto& shape = request.shape;
  const TensorSet extents = extents_of(shape);
  auto graph = std::make_unique<fe::graph::Graph>();
  graph->set_io_data_type(library_type(shape.type))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  const auto input = [&](TensorId id, const Extents& of) {
    return add_input(*graph, id, shape.type, of);
  };
  const auto output = [&](const Tensor& tensor, TensorId id, const Extents& of) {
    set_extents(*tensor, id, shape.type, of);
    tensor->set_output(true);
  };
  switch (request.pass) {
    case ConvolutionPass::forward: {
      const auto x = input(x_id, extents.x);
      const auto weights = input(weights_id, extents.weights);
      output(graph->conv_fprop(x, weights, attributes_of<fe::graph::Conv_fprop_attributes>(shape)),
             y_id, extents.y);
      break;
    }
    case ConvolutionPass::backward_data: {
      const auto dy = input(y_id, extents.y);
      const auto weights = input(weights_id, extents.weights);
      output(graph->conv_dgrad(dy, weights, attributes_of<fe::graph::Conv_dgrad_attributes>(shape)),
             x_id, extents.x);
      break;
    }
    case ConvolutionPass::backward_weights: {
      const auto dy = input(y_id, extents.y);
      const auto x = input(x_id, extents.x);
      output(graph->conv_wgrad(dy, x, attributes_of<fe::graph::Conv_wgrad_attributes>(shape)),
             weights_id, extents.weights);
      break;
    }
  }
  return graph;
}

fe::error_t offer_engines(fe::graph::Graph& graph, cudnnHandle_t handle) {
  if (auto status = graph.validate(); status.is_bad()) return status;
  auto status =
      handle != nullptr ? graph.build_operation_graph(handle) : graph.build_operation_graph();
  if (status.is_bad()) return status;
  return graph.create_execution_plans(
      {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK});
}

void deselect(fe::graph::Graph& graph, const ConvolutionShape& shape, const PlanOptions& options,
              bool precompiled_only) {
  using Note = fe::NumericalNote_t;
  // Products and sums are fp32 for any storage type. An engine must not round its inputs to fewer
  // bits or use transforms that lose digits.
  std::vector<Note> notes{Note::DOWN_CONVERT_INPUTS, Note::REDUCED_PRECISION_REDUCTION,
                          Note::WINOGRAD_TILE_6x6, Note::WINOGRAD_TILE_13x13};
  // Tensor cores multiply fp32 values as tf32.
  if (shape.type == DataType::f32 && !shape.tf32) notes.push_back(Note::TENSOR_CORE);
  if (options.deterministic) notes.push_back(Note::NONDETERMINISTIC);
  graph.deselect_numeric_notes(notes);
  if (precompiled_only) {
    graph.deselect_behavior_notes({fe::BehaviorNote_t::RUNTIME_COMPILATION});
  }
  graph.deselect_workspace_greater_than(static_cast<std::int64_t>(options.max_workspace_bytes));
}

std::string shorten(const std::string& message) {
  std::string line = message.substr(0, message.find('\n'));
  constexpr std::size_t longest = 200;
  if (line.size() > longest) line = line.substr(0, longest) + "...";
  return line;
}

}  // namespace lockstep::gpu::cuda
