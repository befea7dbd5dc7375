#pragma once

#include "convolution_products.hpp"
#include "onednn.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace lockstep::cpu {

struct ConvolutionOptions {
  std::string name;  ///< for messages
  Shape source;      ///< (N, C, H, W)
  Shape weight;      ///< (K, C / groups, R, S)
  Shape target;      ///< (N, K, P, Q)
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = false;
  DataType activations = DataType::f32;
};

/// The oneDNN primitives of a convolution's three steps; oneDNN chooses all formats.
class Convolution final {
 public:
  using Forward = dnnl::convolution_forward;
  using BackwardData = dnnl::convolution_backward_data;
  using BackwardWeights = dnnl::convolution_backward_weights;

  explicit Convolution(const ConvolutionOptions& options);

  [[nodiscard]] Forward::primitive_desc forward(dnnl::prop_kind kind,
                                                const dnnl::engine& engine) const;
  [[nodiscard]] BackwardData::primitive_desc backward_data(const Forward::primitive_desc& hint,
                                                           const dnnl::engine& engine) const;
  [[nodiscard]] BackwardWeights::primitive_desc backward_weights(
      const Forward::primitive_desc& hint, const dnnl::engine& engine) const;
  /// The gradients as matrix products, if those are faster; never of several groups.
  [[nodiscard]] std::optional<DataProduct> data_product(const BackwardData::primitive_desc& direct,
                                                        const dnnl::engine& engine) const;
  [[nodiscard]] std::optional<WeightProduct> weight_product(
      const BackwardWeights::primitive_desc& direct, const dnnl::engine& engine) const;
  /// Format of the weight gradient.
  [[nodiscard]] Desc weight_format(const dnnl::engine& engine) const;

 private:
  [[nodiscard]] Window window() const;
  [[nodiscard]] bool is_grouped() const { return dims_of(weight_).size() == 5; }

  std::string name_;
  Desc source_;
  Desc target_;
  Desc weight_;
  Desc weight_gradient_;
  Desc bias_;
  Dims stride_;
  Dims padding_;
};

}  // namespace lockstep::cpu
