#include "cudnn_plan.hpp"

#include "check.hpp"
#include "cudnn_graph.hpp"
#include "cudnn_trial.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>

namespace lockstep::gpu::cuda {
namespace {

namespace fe = cudnn_frontend;

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

}  // namespace lockstep::gpu::cuda
