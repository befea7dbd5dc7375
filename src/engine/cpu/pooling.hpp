#pragma once

#include "lowering.hpp"

namespace lockstep::cpu {

/// Options common to the two pooling ops.
struct PoolingOptions {
  dnnl::algorithm algorithm;
  std::string name;
  ValueId input;
  Dims kernel;
  Dims stride;
  Dims padding;
};

[[nodiscard]] std::unique_ptr<Lowering> lower_pooling(PoolingOptions options,
                                                      const LoweringContext& context);

}  // namespace lockstep::cpu
