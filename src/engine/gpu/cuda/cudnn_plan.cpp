#include "cudnn_plan.hpp"

#include "check.hpp"
#include "cudnn_trial.hpp"
#include "lockstep/core/error.hpp"

// Skips the headers' JSON, which nothing here needs and which dominates their compile time.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_map>

namespace lockstep::gpu::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

enum TensorId : std::int64_t { x_id = 1, weights_id = 2, y_id = 3 };

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

/// The first line of the library's message, which lists all engines line by line.
std::string shorten(const std::string& message) {
  std::string line = message.substr(0, message.find('\n'));
  constexpr std::size_t longest = 200;
  if (line.size() > longest) line = line.substr(0, longest) + "...";
  return line;
}

using Extents = std::array<std::int64_t, 4>;
/// Extents are in the library's order (N, C, H, W); memory is in the order (N, H, W, C).
void set_extents(Tensor_attributes& tensor, std::int64_t id, DataType type,
                 const Extents& extents) {
  const auto [n, c, h, w] = extents;
  tensor.set_uid(id)
      .set_data_type(library_type(type))
      .set_dim({n, c, h, w})
      .set_stride({h * w * c, 1, w * c, c});
}

/// The library infers the number of groups: channels of x / channels of the weights.
struct TensorSet {
  Extents x;
  Extents weights;
  Extents y;
};
TensorSet extents_of(const ConvolutionShape& shape) {
  return {.x = {shape.batch, shape.in_channels, shape.height, shape.width},
          .weights = {shape.out_channels, shape.channels_per_group(), shape.kernel,
                      shape.kernel_columns()},
          .y = {shape.batch, shape.out_channels, shape.out_height(), shape.out_width()}};
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

/// Rules out engines with less precision than asked for, or with results that vary between runs.
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

/// Lowers the graph and adds the candidates that the heuristics offer; else the library's error.
fe::error_t offer_engines(fe::graph::Graph& graph, cudnnHandle_t handle) {
  if (auto status = graph.validate(); status.is_bad()) return status;
  auto status =
      handle != nullptr ? graph.build_operation_graph(handle) : graph.build_operation_graph();
  if (status.is_bad()) return status;
  return graph.create_execution_plans(
      {fe::HeurMode_t::A, fe::HeurMode_t::B, fe::HeurMode_t::FALLBACK});
}

constexpr auto no_limit = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());

class Plan final : public ConvolutionPlan {
 public:
  explicit Plan(std::unique_ptr<fe::graph::Graph> graph) : graph_(std::move(graph)) {}

  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return workspace_bytes_; }
  [[nodiscard]] const std::string& engine() const noexcept override { return engine_; }
  void run(cudnnHandle_t handle, void* x, void* weights, void* y, void* workspace) override {
    pointers_[x_id] = x;
    pointers_[weights_id] = weights;
    pointers_[y_id] = y;
    auto status = graph_->execute_plan_at_index(handle, pointers_, workspace, index_);
    if (status.is_bad()) {
      fail(ExitStatus::internal, "cuDNN's {} failed ({}); look for earlier errors of this rank",
           engine_, shorten(status.get_message()));
    }
  }

  /// The candidates that can be built, best first, at most `count`. Appends the reasons of the
  /// others to `reason`.
  std::vector<std::int64_t> build(int count, std::string& reason) {
    std::vector<std::int64_t> built;
    std::vector<std::string> names;
    for (std::int64_t i = 0; i < graph_->get_execution_plan_count(); ++i) {
      if (static_cast<int>(built.size()) == count) break;
      std::string name;
      if (graph_->get_plan_name_at_index(i, name).is_bad()) continue;
      // The heuristics' modes offer some engines twice.
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      names.push_back(name);
      auto status = graph_->build_plan_at_index(i);
      if (status.is_good()) {
        built.push_back(i);
      } else if (reason.empty() || reason.find("Deselecting") != std::string::npos) {
        reason = shorten(status.get_message());
      }
    }
    return built;
  }

  /// The candidate of that name, if it exists and can be built.
  [[nodiscard]] std::optional<std::int64_t> build_known(const std::string& wanted) {
    for (std::int64_t i = 0; i < graph_->get_execution_plan_count(); ++i) {
      std::string name;
      if (graph_->get_plan_name_at_index(i, name).is_bad() || name != wanted) continue;
      if (graph_->build_plan_at_index(i).is_good()) return i;
    }
    return std::nullopt;
  }

  void choose(std::int64_t index) {
    index_ = index;
    workspace_bytes_ = static_cast<std::size_t>(
        std::max<std::int64_t>(0, graph_->get_workspace_size_plan_at_index(index)));
    if (graph_->get_plan_name_at_index(index, engine_).is_bad()) engine_ = "engine";
  }

 private:
  std::unique_ptr<fe::graph::Graph> graph_;
  std::unordered_map<std::int64_t, void*> pointers_;
  std::int64_t index_ = 0;
  std::size_t workspace_bytes_ = 0;
  std::string engine_;
};

/// The candidate that is fastest on the device.
std::int64_t choose_by_time(Plan& plan, const std::vector<std::int64_t>& candidates,
                            cudnnHandle_t handle, const ConvolutionShape& shape) {
  cudaStream_t stream = nullptr;
  LOCKSTEP_CUDA_CHECK(cudnnGetStream(handle, &stream));
  // The output may be wider than the operands; four bytes per value fit any type.
  const auto bytes = [](const Extents& e) {
    return static_cast<std::size_t>(e[0] * e[1] * e[2] * e[3]) * size_of(DataType::f32);
  };
  const TensorSet extents = extents_of(shape);
  std::size_t workspace_bytes = 0;
  for (const auto index : candidates) {
    plan.choose(index);
    workspace_bytes = std::max(workspace_bytes, plan.workspace_bytes());
  }
  return fastest(candidates,
                 {.x = bytes(extents.x),
                  .weights = bytes(extents.weights),
                  .y = bytes(extents.y),
                  .workspace = workspace_bytes},
                 stream, [&](std::int64_t index, const TrialMemory& memory) {
                   plan.choose(index);
                   plan.run(handle, memory.x, memory.weights, memory.y, memory.workspace);
                 });
}

}  // namespace

PlanResult make_plan(cudnnHandle_t handle, const ConvolutionRequest& request,
                     const PlanOptions& options, const std::string& known) {
  std::string reason;
  struct Round {
    bool precompiled_only;
    std::size_t limit;
  };
  for (const auto& [precompiled_only, limit] :
       {Round{true, options.max_workspace_bytes}, Round{false, options.max_workspace_bytes},
        Round{false, no_limit}}) {
    auto graph = make_graph(request);
    if (auto status = offer_engines(*graph, handle); status.is_bad()) {
      return {.plan = nullptr, .reason = shorten(status.get_message())};
    }
    PlanOptions limited = options;
    limited.max_workspace_bytes = limit;
    deselect(*graph, request.shape, limited, precompiled_only);
    auto plan = std::make_unique<Plan>(std::move(graph));
    if (!known.empty()) {
      if (const auto index = plan->build_known(known)) {
        plan->choose(*index);
        return {.plan = std::move(plan), .reason = {}};
      }
    }
    const auto candidates = plan->build(std::max(1, options.timed_candidates), reason);
    if (candidates.empty()) continue;
    plan->choose(candidates.size() == 1 ? candidates.front()
                                        : choose_by_time(*plan, candidates, handle, request.shape));
    return {.plan = std::move(plan), .reason = {}};
  }
  return {.plan = nullptr, .reason = std::move(reason)};
}

EngineSurvey survey_engines(const std::string& device, const ConvolutionRequest& request,
                            const SurveyOptions& options) {
  auto properties = std::make_shared<fe::DeviceProperties>();
  if (auto status = properties->deserialize({device.begin(), device.end()}); status.is_bad()) {
    fail(ExitStatus::internal, "cuDNN does not take a description of a device ({})",
         status.get_message());
  }
  auto graph = make_graph(request);
  graph->set_device_properties(properties);
  if (auto status = offer_engines(*graph, nullptr); status.is_bad()) {
    return {.engines = {}, .reason = shorten(status.get_message())};
  }
  deselect(*graph, request.shape, options.plans, options.precompiled_only);
  std::vector<EngineSupport> engines;
  for (std::int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
    EngineSupport support;
    if (graph->get_plan_name_at_index(i, support.engine).is_bad()) continue;
    const bool known = std::any_of(engines.begin(), engines.end(), [&](const auto& other) {
      return other.engine == support.engine;
    });
    if (known) continue;
    std::vector<fe::BehaviorNote_t> notes;
    if (graph->get_behavior_notes_for_plan_at_index(i, notes).is_good()) {
      support.compiled_at_run = std::find(notes.begin(), notes.end(),
                                          fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
    }
    // Compiling takes seconds, and then needs a driver to load the result.
    if (support.compiled_at_run && !options.precompiled_only) {
      support.reason = "compiled at run time";
      engines.push_back(std::move(support));
      continue;
    }
    auto status = graph->build_plan_at_index(i);
    support.finalizes = status.is_good();
    const std::string reason = status.get_message();
    support.reason = shorten(reason);
    support.allowed = reason.find("Deselecting") == std::string::npos &&
                      reason.find("workspace violation") == std::string::npos;
    if (support.finalizes) {
      support.workspace_bytes =
          static_cast<std::size_t>(graph->get_workspace_size_plan_at_index(i));
    }
    engines.push_back(std::move(support));
    if (options.first_only && engines.back().finalizes) break;
  }
  return {.engines = std::move(engines), .reason = {}};
}

}  // namespace lockstep::gpu::cuda
