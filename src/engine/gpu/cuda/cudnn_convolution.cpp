#include "cudnn_convolution.hpp"

#include "check.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cassert>
#include <string>

namespace lockstep::gpu::cuda {
namespace {

[[noreturn]] void fail_unsupported(const ConvolutionRequest& request, const std::string& reason) {
  fail(ExitStatus::usage,
       "no algorithm for the {} (cuDNN: {}); use another --precision, batch size or width",
       request.text(), reason.empty() ? "no engine offered" : reason);
}

using SharedPlan = std::shared_ptr<ConvolutionPlan>;

struct PassPlans {
  // Null where not asked for.
  SharedPlan forward;
  SharedPlan backward_data;
  SharedPlan backward_weights;
};

// The library takes no const pointers, but writes only a pass's output.
void* mutable_pointer(const void* pointer) noexcept {
  return const_cast<void*>(pointer);
}

class CudnnConvolution final : public Convolution {
 public:
  CudnnConvolution(cudnnHandle_t handle, PassPlans plans)
      : handle_(handle), plans_(std::move(plans)) {}

  [[nodiscard]] std::size_t workspace_bytes() const noexcept override {
    std::size_t bytes = 0;
    for (const auto* plan : {&plans_.forward, &plans_.backward_data, &plans_.backward_weights}) {
      if (*plan != nullptr) bytes = std::max(bytes, (*plan)->workspace_bytes());
    }
    return bytes;
  }
  void forward(const void* x, const void* weights, void* y, void* workspace) override {
    assert(plans_.forward != nullptr);
    plans_.forward->run(handle_, mutable_pointer(x), mutable_pointer(weights), y, workspace);
  }
  void backward_data(const void* dy, const void* weights, void* dx, void* workspace) override {
    assert(plans_.backward_data != nullptr);
    plans_.backward_data->run(handle_, dx, mutable_pointer(weights), mutable_pointer(dy),
                              workspace);
  }
  void backward_weights(const void* x, const void* dy, void* dw, void* workspace) override {
    assert(plans_.backward_weights != nullptr);
    plans_.backward_weights->run(handle_, mutable_pointer(x), dw, mutable_pointer(dy), workspace);
  }

 private:
  cudnnHandle_t handle_;
  PassPlans plans_;
};

}  // namespace

CudnnConvolutions::CudnnConvolutions(cudaStream_t stream, const PlanOptions& options,
                                     std::string name)
    : options_(options), name_(std::move(name)) {
  cudnnHandle_t handle = nullptr;
  LOCKSTEP_CUDA_CHECK(cudnnCreate(&handle));
  handle_ = UniqueCudnn(handle);
  LOCKSTEP_CUDA_CHECK(cudnnSetStream(handle, stream));
}

std::pair<CudnnConvolutions::SharedPlan, std::string> CudnnConvolutions::find(
    const ConvolutionRequest& request) {
  const auto known = std::find_if(plans_.begin(), plans_.end(),
                                  [&](const auto& entry) { return entry.first == request; });
  if (known != plans_.end()) return {known->second, {}};
  PlanOptions untimed = options_;
  untimed.timed_candidates = 0;
  const auto chosen = choices_.find(request.text());
  auto result = make_plan(handle_.get(), request, untimed,
                          chosen == choices_.end() ? std::string() : chosen->second);
  SharedPlan plan = std::move(result.plan);
  if (plan != nullptr) plans_.emplace_back(request, plan);
  return {std::move(plan), std::move(result.reason)};
}

std::string CudnnConvolutions::fastest(const ConvolutionRequest& request) {
  if (options_.timed_candidates < 2 || request.operations() < options_.smallest_trial) return "";
  // The plan is not kept: it holds all candidates. Like on the other ranks, find() builds the
  // chosen one alone.
  const auto [plan, reason] = make_plan(handle_.get(), request, options_, {});
  if (plan == nullptr) fail_unsupported(request, reason);
  return plan->engine();
}

CudnnConvolutions::SharedPlan CudnnConvolutions::require(const ConvolutionRequest& request) {
  auto [plan, reason] = find(request);
  if (plan == nullptr) fail_unsupported(request, reason);
  return plan;
}

std::unique_ptr<Convolution> CudnnConvolutions::make(const ConvolutionShape& shape,
                                                     ConvolutionPasses passes) {
  const auto plan = [&](bool is_used, ConvolutionPass pass) {
    return is_used ? require({.shape = shape, .pass = pass}) : nullptr;
  };
  return std::make_unique<CudnnConvolution>(
      handle_.get(),
      PassPlans{
          .forward = plan(passes.forward, ConvolutionPass::forward),
          .backward_data = plan(passes.backward_data, ConvolutionPass::backward_data),
          .backward_weights = plan(passes.backward_weights, ConvolutionPass::backward_weights)});
}

}  // namespace lockstep::gpu::cuda
