#pragma once

#include "cudnn_plan.hpp"
#include "device.hpp"
#include "device_options.hpp"
#include "lockstep/core/unique_handle.hpp"

#include <cudnn.h>

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::cuda {

struct CudnnHandleTraits {
  using Handle = cudnnHandle_t;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { (void)cudnnDestroy(handle); }
};
using UniqueCudnnHandle = UniqueHandle<CudnnHandleTraits>;

/// Makes convolutions that run in one stream. Those of equal shape share their plans; all must be
/// gone before the maker is.
class ConvolutionMaker final {
 public:
  ConvolutionMaker(cudaStream_t stream, const PlanOptions& options);

  /// Error(usage) with shape, precision and the library's reason where no engine computes a pass.
  [[nodiscard]] std::unique_ptr<Convolution> make(const ConvolutionShape& shape,
                                                  ConvolutionPasses passes);

 private:
  using SharedPlan = std::shared_ptr<ConvolutionPlan>;
  /// Null, and why, where there is no plan.
  [[nodiscard]] std::pair<SharedPlan, std::string> find(const PlanRequest& request);
  [[nodiscard]] SharedPlan require(const PlanRequest& request);

  PlanOptions options_;
  UniqueCudnnHandle handle_;
  std::vector<std::pair<PlanRequest, SharedPlan>> plans_;
};

}  // namespace lockstep::cuda
