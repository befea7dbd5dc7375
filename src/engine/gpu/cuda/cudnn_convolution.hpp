#pragma once

#include "../device.hpp"
#include "../device_options.hpp"
#include "cudnn_plan.hpp"
#include "lockstep/core/unique_handle.hpp"

#include <cudnn.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::gpu::cuda {

struct CudnnHandleTraits {
  using Handle = cudnnHandle_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { (void)cudnnDestroy(handle); }
};
using UniqueCudnnHandle = UniqueHandle<CudnnHandleTraits>;

/// Makes convolutions that run in one stream. Convolutions of equal shape share plans; all must be
/// destroyed before the maker.
class ConvolutionMaker final {
 public:
  ConvolutionMaker(cudaStream_t stream, const PlanOptions& options);

  /// Error(usage) with shape, precision and the library's reason if no engine computes a pass.
  [[nodiscard]] std::unique_ptr<Convolution> make(const ConvolutionShape& shape,
                                                  ConvolutionPasses passes);
  /// As Device::fastest_algorithm.
  [[nodiscard]] std::string fastest(const ConvolutionRequest& request);
  void set_algorithms(AlgorithmChoices choices) { choices_ = std::move(choices); }

 private:
  using SharedPlan = std::shared_ptr<ConvolutionPlan>;
  /// Null and the reason if there is no plan.
  [[nodiscard]] std::pair<SharedPlan, std::string> find(const ConvolutionRequest& request);
  [[nodiscard]] SharedPlan require(const ConvolutionRequest& request);

  PlanOptions options_;
  AlgorithmChoices choices_;
  UniqueCudnnHandle handle_;
  std::vector<std::pair<ConvolutionRequest, SharedPlan>> plans_;
};

}  // namespace lockstep::gpu::cuda
