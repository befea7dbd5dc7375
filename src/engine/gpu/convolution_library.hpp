#pragma once

#include "convolution_request.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace lockstep::gpu {

/// The passes of a convolution, each bound to an algorithm. Each queues its work in the device's
/// stream and returns; accumulation is in fp32, and all results are in the type of the values.
/// `workspace` has at least workspace_bytes().
class Convolution {
 public:
  virtual ~Convolution() = default;
  [[nodiscard]] virtual std::size_t workspace_bytes() const noexcept = 0;
  virtual void forward(const void* x, const void* weights, void* y, void* workspace) = 0;
  virtual void backward_data(const void* dy, const void* weights, void* dx, void* workspace) = 0;
  virtual void backward_weights(const void* x, const void* dy, void* dw, void* workspace) = 0;
};
/// The passes that a Convolution may be called for.
struct ConvolutionPasses {
  bool forward = false;
  bool backward_data = false;
  bool backward_weights = false;
};
inline constexpr ConvolutionPasses all_passes{
    .forward = true, .backward_data = true, .backward_weights = true};

/// The convolutions of one device, and the choice of their algorithms.
class ConvolutionLibrary {
 public:
  virtual ~ConvolutionLibrary() = default;
  /// Error(usage) if no algorithm computes it.
  [[nodiscard]] virtual std::unique_ptr<Convolution> make(const ConvolutionShape& shape,
                                                          ConvolutionPasses passes) = 0;
  /// Device and library to which names of algorithms apply: "NVIDIA H200, 132 SMs, cuDNN 9.19.0".
  [[nodiscard]] virtual std::string name() const { return ""; }
  /// Times the algorithms and returns the fastest one's name; empty if that is not worthwhile or
  /// there is no choice. Error(usage) as make().
  [[nodiscard]] virtual std::string fastest(const ConvolutionRequest& /*request*/) { return ""; }
  /// Sets the algorithms of convolutions made from now on. The library's first choice is used for
  /// requests that are not included, or whose algorithm is not available.
  virtual void set_algorithms(AlgorithmChoices /*choices*/) {}
};

}  // namespace lockstep::gpu
