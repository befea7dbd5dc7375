#pragma once

#include "../convolution_library.hpp"
#include "../device_options.hpp"
#include "cuda_handles.hpp"
#include "cudnn_plan.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::gpu::cuda {

/// cuDNN's convolutions in one stream. Convolutions of equal shape share plans; all must be
/// destroyed before the library.
class CudnnConvolutions final : public ConvolutionLibrary {
 public:
  CudnnConvolutions(cudaStream_t stream, const PlanOptions& options, std::string name);

  /// Error(usage) with shape, precision and the library's reason if no engine computes a pass.
  [[nodiscard]] std::unique_ptr<Convolution> make(const ConvolutionShape& shape,
                                                  ConvolutionPasses passes) override;
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] std::string fastest(const ConvolutionRequest& request) override;
  void set_algorithms(AlgorithmChoices choices) override { choices_ = std::move(choices); }

 private:
  using SharedPlan = std::shared_ptr<ConvolutionPlan>;
  /// Null and the reason if there is no plan.
  [[nodiscard]] std::pair<SharedPlan, std::string> find(const ConvolutionRequest& request);
  [[nodiscard]] SharedPlan require(const ConvolutionRequest& request);

  PlanOptions options_;
  std::string name_;
  AlgorithmChoices choices_;
  UniqueCudnn handle_;
  std::vector<std::pair<ConvolutionRequest, SharedPlan>> plans_;
};

}  // namespace lockstep::gpu::cuda
