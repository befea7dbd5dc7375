#pragma once

#include "step.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::cpu {

/// target (N, C) = source (N, F) * weight (F, C) + bias (C), fp32. The bits of a sample's values do
/// not depend on the rest of the batch. (Those of oneDNN's inner product do, without AVX-512.)
class LinearStep final : public Step {
 public:
  struct Operands {
    dnnl::memory source;
    dnnl::memory weight;  ///< row-major (F, C): oneDNN's format `ba`
    dnnl::memory bias;
    dnnl::memory target;
  };
  LinearStep(std::string name, Operands operands, int threads);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }

 private:
  void compute(std::int64_t first, std::int64_t last) const;

  std::string name_;
  Operands operands_;
  std::int64_t samples_;
  std::int64_t in_features_;
  std::int64_t out_features_;
  int threads_;
};

}  // namespace lockstep::cpu
